-- counting questions about people.csv, one a line
SELECT COUNT(*) FROM people WHERE age < 30
SELECT COUNT(*) FROM people WHERE age >= 65 AND ward = 'north'
SELECT COUNT(*) FROM people WHERE ward IN ('south', 'west') AND (age < 30 OR age >= 65)
