"""One example for each command, as it is typed: help shows them, and a test reads them."""

from collections.abc import Mapping
from typing import Final

EXAMPLES: Final[Mapping[str, str]] = {
    # begin
    "demo": "noisegate demo",
    "explain-epsilon": "noisegate explain-epsilon 0.5 --prior 0.1",
    "what-if": "noisegate what-if --budget 2 --within 20\n"
    "noisegate what-if --queries 10 --bound 100 --tolerance 1 --epsilon 1",
    # ask
    "ask": 'noisegate ask clinic.toml "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward" '
    "--epsilon 0.1\n"
    "noisegate ask people.csv @question.sql --budget 2 --within 20 --json",
    "plan": 'noisegate plan clinic.toml "SELECT AVG(age) FROM patients" --epsilon 0.1 --rows 5000',
    "shell": "noisegate shell clinic.toml --analyst ana --epsilon 0.1",
    "describe": "noisegate describe clinic.toml --table patients --epsilon 0.5 --plan",
    "choose": 'noisegate choose clinic.toml "SELECT ward, COUNT(*) FROM visits GROUP BY ward" '
    "--epsilon 0.1 --gap",
    "auction": "noisegate auction bids.csv bid --prices 5:100:5 --between bid=0,100 --budget 2 "
    "--epsilon 0.5",
    "many": "noisegate many clinic.toml --questions questions.sql --within 50 --epsilon 1",
    "thresholds": "noisegate thresholds clinic.toml --questions questions.sql --threshold 100 "
    "--count 3 --epsilon 1",
    "smooth": 'noisegate smooth clinic.toml "SELECT MEDIAN(cost) FROM visits" --epsilon 1',
    "distance": "noisegate distance points.csv --columns x,y --radius 2 --clusters 3 --epsilon 1 "
    "--budget 2",
    "graph": "noisegate graph calls.csv triangles --source caller --target called --nodes 0:99 "
    "--epsilon 1 --budget 2",
    "statistic": "noisegate statistic clinic.toml 'age >= 65' 'cost / 800' --epsilon 0.5",
    "apply": "noisegate apply clinic.toml program.py:mean 'SELECT age FROM patients' --range 0,120 "
    "--blocks 100 --epsilon 1",
    "bounds": "noisegate bounds clinic.toml visits cost --epsilon 0.1",
    "caps": "noisegate caps clinic.toml visits --epsilon 0.1 --plan",
    "order": "noisegate order clinic.toml order.json --plan --json",
    # release and learn
    "release": 'noisegate release histogram clinic.toml "SELECT COUNT(*) FROM patients GROUP BY '
    'BIN(age, 5)" --epsilon 0.5 --save ages.parquet\n'
    "noisegate release synthetic people.csv --budget 2 --epsilon 1 --rows 1000 --save made.csv",
    "learn": "noisegate learn clinic.toml KMeans --columns age,cost --set n_clusters=3 --epsilon 1 "
    "--save model.joblib",
    "hypothesis": "noisegate hypothesis people.csv 'age >= t' --label \"sick = 'yes'\" "
    "--candidates t=20,40,60 --epsilon 1 --budget 2",
    # steward
    "init": "noisegate init customers.csv orders.csv --unit customer_id --type total=number --to "
    "shop.toml",
    "check": "noisegate check clinic.toml --json",
    "policy show": "noisegate policy show clinic.toml",
    "policy schema": "noisegate policy schema > policy.schema.json",
    "ledger show": "noisegate ledger show clinic.toml --entries",
    "ledger verify": "noisegate ledger verify clinic.toml --head heads.jsonl",
    "ledger head": "noisegate ledger head clinic.toml --sign steward.key >> heads.jsonl",
    "ledger key": "noisegate ledger key steward.key",
    "ledger export": "noisegate ledger export clinic.toml > clinic.jsonl",
    "ledger restore": "noisegate ledger restore clinic.jsonl clinic.toml.ledger",
    "ledger report": "noisegate ledger report clinic.toml --at-delta 1e-6",
    "ledger budget": "noisegate ledger budget clinic.toml clinic 5 --reason 'second year'\n"
    "noisegate ledger budget clinic.toml ana 1.5 --reason 'a longer study'",
    # serve
    "serve": "noisegate serve clinic.toml --port 8080 --pg-port 5433",
    "mcp": "noisegate mcp clinic.toml --analyst bot",
    "account add": "noisegate account add ana --role analyst --state clinic.toml",
    "account list": "noisegate account list --state clinic.toml",
    "account password": "noisegate account password ana --state clinic.toml --password-stdin",
    "account disable": "noisegate account disable ana --state clinic.toml",
    "token new": "noisegate token new ana --state clinic.toml --expires 30d --epsilon-hour 0.5",
    "token list": "noisegate token list ana --state clinic.toml",
    "token revoke": "noisegate token revoke 7f3a --state clinic.toml",
    "audit-log": "noisegate audit-log --state clinic.toml --since 7d --person ana",
    "owner add": "noisegate owner add flu.json north KEY --session flu --epsilon 1 --cells 52",
    "owner serve": "noisegate owner serve flu.json --port 7000 --save flu.csv",
    "owner join": "noisegate owner join flu.json north --numbers weeks.txt --to 127.0.0.1:7000 "
    "--key north.key --ledger north.ledger --budget 3",
    # verify
    "verify": "noisegate verify ages.parquet --key-file steward.pub --ledger clinic.toml",
    "key new": "noisegate key new steward.key > steward.pub",
    "key show": "noisegate key show steward.key",
    "audit": 'noisegate audit clinic.toml "SELECT COUNT(*) AS n FROM visits" --epsilon 1 '
    "--trials 20000\n"
    "noisegate audit --mechanism geometric",
    "lab owners": "noisegate lab owners --owners 6 --drop-outs 1 --colluding 2",
    "lab crowd": "noisegate lab crowd --probability 1/10 --crowd 36",
    "lab linkage": "noisegate lab linkage --people 1000 --k 5",
    "lab attacks": "noisegate lab attacks differencing reconstruction --save attacks.html",
    "lab ratio": "noisegate lab ratio --mechanism gaussian --epsilon 1 --save ratio.svg",
    "lab bounds": "noisegate lab bounds --epsilon 0.5",
    "lab report": "noisegate lab report --save lab.html --times 50",
    "lab map": "noisegate lab map --epsilon 1 --epsilon 0.1 --save map.svg",
}
