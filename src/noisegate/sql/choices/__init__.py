"""A private choice among candidates, by scores that SQL or a public list gives them."""
