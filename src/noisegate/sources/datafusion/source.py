"""Parquet files in DataFusion: one statement for a question, in this process.

Claim: what a statement returns is what the same tally is on DuckDB, and moves by at most the
    tally's sensitivity. Why: see `asked/source.py`. The files of a table are listed when it is
    opened, and only these are read. One that is changed or gone is noticed before a question is
    charged, and again before its answer is used.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from noisegate.errors import DEBUG, NoisegateError, SourceError
from noisegate.privacy.domain import TableDomain
from noisegate.sources.asked.facts import FileFacts
from noisegate.sources.asked.opening import AGAIN, NOT_CHARGED, NOT_PLANNED, UNREACHABLE
from noisegate.sources.asked.parquet import parquet_table, path_of, require_same
from noisegate.sources.asked.pool import Pool
from noisegate.sources.asked.source import ArrowSource
from noisegate.sources.asked.streams import streamed
from noisegate.sources.datafusion.dialect import DATAFUSION
from noisegate.sources.datafusion.session import columns_of, locked, session
from noisegate.sources.source import Used
from noisegate.sources.stopping import require_going_on

if TYPE_CHECKING:
    import pyarrow as pa

    from noisegate.algebra.blocks import Blocks
    from noisegate.algebra.tally import Tally


@final
class DataFusionSource(ArrowSource):
    """Tables of files; each question is asked in a session with memory of its own."""

    dialect = DATAFUSION

    def __init__(
        self, data: Mapping[str, Path], tables: Mapping[str, TableDomain], *, seconds: float = 3600
    ) -> None:
        self._seconds, self._process = seconds, os.getpid()
        self._form = {name: parquet_table(data[name], columns_of) for name in tables}
        super().__init__(tables, {name: each.types for name, each in self._form.items()})
        self._lines = Pool(list[Any])  # of one session, or none
        self._require_tables()
        self._require_texts()

    def lies_in(self, table: str) -> frozenset[str]:
        """The real paths of its files and of their folder."""
        return self._form[table].places

    def require(self, tally: "Tally | Blocks") -> None:
        """Refuse what has no words here, and files that are not those that were opened."""
        super().require(tally)
        require_same(self._form.values())

    def _table(self, text: str) -> "pa.Table":
        import pyarrow as pa  # noqa: PLC0415 - slow to load

        return self._run(text, pa.Table.from_batches)

    def _stream(self, text: str, use: "Callable[[Iterator[pa.RecordBatch]], Used]") -> Used:
        return self._run(text, lambda found, _: use(found))

    def _plan(self, text: str) -> None:
        """A physical plan: of the statistics of files it reads none."""
        done = os.getpid() != self._process  # a forked child is told when it asks
        with self._lines.taken() as line:
            try:
                if not done:
                    self._session(line).sql_with_options(text, locked()).execution_plan()
                done = True
            except Exception:
                if os.environ.get(DEBUG):
                    raise
            finally:
                if not done:
                    line.clear()
        require_same(self._form.values())
        if not done:
            raise SourceError(NOT_PLANNED, fix=NOT_CHARGED, about="plan")

    def _session(self, line: list[Any]) -> Any:  # noqa: ANN401 - a SessionContext
        line[:] = line or [session(self._form.values())]
        return line[0]

    def _run(self, text: str, use: "Callable[[Iterator[pa.RecordBatch], pa.Schema], Used]") -> Used:
        """What is made of the answer; else a refusal, and a new session for the next question."""
        done = False
        with self._lines.taken() as line:
            try:
                found = self._asked(line, text, use)
                done = True
            except NoisegateError:
                raise
            except Exception:
                if os.environ.get(DEBUG):
                    raise
            finally:
                if not done:
                    line.clear()
        require_going_on()
        require_same(self._form.values())
        if not done:
            raise SourceError(UNREACHABLE, fix=AGAIN)
        return found

    def _asked(
        self,
        line: list[Any],
        text: str,
        use: "Callable[[Iterator[pa.RecordBatch], pa.Schema], Used]",
    ) -> Used:
        if os.getpid() != self._process:
            raise ChildProcessError("A forked child has none of the engine's threads.")
        frame = self._session(line).sql_with_options(text, locked())
        schema = _without_views(frame.schema())
        return streamed(
            frame.execute_stream(),
            self._seconds,
            lambda parts: use((part.to_pyarrow().cast(schema) for part in parts), schema),
            lambda part: int(part.to_pyarrow().nbytes),
        )


def _without_views(schema: "pa.Schema") -> "pa.Schema":
    """The same with texts of one type: LEFT and RIGHT give views, which Arrow cannot sort."""
    import pyarrow as pa  # noqa: PLC0415 - slow to load

    return pa.schema(
        each.with_type(pa.string()) if each.type == pa.string_view() else each for each in schema
    )


_FACTS: Final = FileFacts(
    lambda data: {name: parquet_table(path, columns_of) for name, path in data.items()},
    DataFusionSource,
)
data_of, open_source = path_of, DataFusionSource  # see `engines.Engine`
stored_kinds, as_stored, require_rows = _FACTS.stored_kinds, _FACTS.as_stored, _FACTS.require_rows
public_keys, as_held = _FACTS.public_keys, _FACTS.as_held
