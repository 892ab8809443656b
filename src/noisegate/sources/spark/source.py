"""Tables of a Spark server: one statement for a question, whole numbers come back.

Claim: what a statement returns is what the same tally is on DuckDB, and moves by at most the
    tally's sensitivity. Why: see `asked/source.py`. A statement may read a table twice, for an
    owner's rows and for how many these are, and tasks are run again where a machine is lost: so
    all of them must be about the same rows. The files of each table are listed once, when it is
    opened, and only these are read from then on, by every statement of every allowance. Files that
    come later are not seen. One that is gone when the answer is there is an error, and nothing is
    released. That nobody writes into a file in place is the steward's word (`Source.still`), as it
    is of all files; Spark itself never does.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, final

from noisegate.errors import DEBUG, NoisegateError, PolicyError, SourceError
from noisegate.frozen import dataclass, field
from noisegate.privacy.domain import TableDomain
from noisegate.sources.asked.dialect import KIND_OF
from noisegate.sources.asked.opening import AGAIN, NOT_CHARGED, NOT_PLANNED, UNREACHABLE
from noisegate.sources.asked.pool import Pool
from noisegate.sources.asked.source import ArrowSource
from noisegate.sources.source import Used
from noisegate.sources.spark.dialect import SPARK, STAGED, Spark
from noisegate.sources.spark.server import Place, connect, takes_any_text, told
from noisegate.sources.stopping import cuttable, require_going_on
from noisegate.sources.writing.relations import base_view

if TYPE_CHECKING:
    import pyarrow as pa

_PLANNED: Final = 8  # statements of one question


@final
@dataclass(eq=False, slots=True)
class _Line:
    """A session of one process, for one question at a time."""

    session: Any = None
    process: int = 0
    planned: dict[str, Any] = field(default_factory=dict)  # statements that were sent, not run


@final
class SparkSource(ArrowSource):
    """Tables of one server; each question is asked in a session of its own."""

    dialect: Spark = SPARK

    def __init__(
        self,
        data: Mapping[str, Place],
        tables: Mapping[str, TableDomain],
        *,
        seconds: float = 3600,
    ) -> None:
        self._data = {name: data[name] for name in tables}
        self._seconds = seconds
        self._server = one_server(self._data)
        session = connect(self._server)
        with told():
            self._form = {name: each.stored(session) for name, each in self._data.items()}
        known = {
            name: {column: kind for column, kind in each.types.items() if kind in KIND_OF}
            for name, each in self._form.items()
        }
        super().__init__(tables, known)
        self._lines = Pool(_Line)
        with self._lines.taken() as line, told():
            self._opened(line, session)
        self._require_tables()
        if takes_any_text(session):  # no other server does
            self.dialect = STAGED
        else:
            self._require_texts()

    def lies_in(self, table: str) -> frozenset[str]:
        """The folders of its files, by the name that the server has for them."""
        return self._form[table].folders

    def _opened(self, line: "_Line", session: Any) -> None:  # noqa: ANN401 - a SparkSession
        """Name the tables in a new session."""
        for place, stored in enumerate(self._form.values()):
            stored.rows(session).createOrReplaceTempView(base_view(place))
        line.session, line.process, line.planned = session, os.getpid(), {}

    def _table(self, text: str) -> "pa.Table":
        return self._run(text, lambda frame: frame.toArrow())

    def _stream(self, text: str, use: "Callable[[Iterator[pa.RecordBatch]], Used]") -> Used:
        return self._run(text, lambda frame: use(_batches(frame)))

    def _plan(self, text: str) -> None:
        self._run(text, lambda frame: frame._explain_string(), planning=True)  # noqa: SLF001

    def _run(self, text: str, use: Callable[[Any], Used], *, planning: bool = False) -> Used:
        """What is made of the answer of one job; else a refusal, and a new session for the next."""
        done = False
        with self._lines.taken() as line:
            session = None
            try:
                if line.session is None or line.process != os.getpid():  # or its parent's
                    self._opened(line, connect(self._server))
                session = line.session
                with cuttable(partial(_stop, session), self._seconds) as asked:
                    frame = line.planned.pop(text, None) or session.sql(text)
                    found = use(frame)
                if planning:
                    line.planned = {text: frame, **dict(list(line.planned.items())[: _PLANNED - 1])}
                done = planning or self._is_whole(session, text)
                if asked.is_cut:
                    line.session = None  # what comes too late meets no other question
            except NoisegateError:
                raise
            except Exception:
                if os.environ.get(DEBUG):
                    raise
            finally:
                if not done:
                    line.session = None
                    _stop(session)
        if not done:
            require_going_on()
            if planning:
                raise SourceError(NOT_PLANNED, fix=NOT_CHARGED, about="plan")
            raise SourceError(UNREACHABLE, fix=AGAIN)
        return found

    def _is_whole(self, session: Any, text: str) -> bool:  # noqa: ANN401 - a SparkSession
        """Whether all files of the tables in a statement are still there: some servers skip one."""
        return all(
            sorted(each.rows(session).inputFiles()) == list(each.files)
            for place, each in enumerate(self._form.values())
            if base_view(place) in text
        )


def one_server(data: Mapping[str, Place]) -> Place:
    """The one server of all tables."""
    places = {(place.url, id(place.session)): place for place in data.values()}
    if len(places) != 1:
        raise PolicyError(
            "The tables are on several servers.",
            fix="Keep all tables of a policy on one server.",
            about="engines",
        )
    return next(iter(places.values()))


def _stop(session: Any) -> None:  # noqa: ANN401 - a SparkSession
    """End what a session is doing: nobody waits for it."""
    with suppress(Exception):
        if session is not None:
            session.interruptAll()


def _batches(frame: Any) -> "Iterator[pa.RecordBatch]":  # noqa: ANN401 - a DataFrame
    """Its rows as they come: the client's own `toArrow` waits for all of them."""
    client, plan = frame.sparkSession.client, frame._plan  # noqa: SLF001 - it has no other name
    for found in client.to_table_as_iterator(plan.to_proto(client), {}):
        if hasattr(found, "to_batches"):  # else it says which columns there are
            yield from found.to_batches()
