"""All faces of a service in one process: what an operator can choose, starting, and the end.

A choice is taken from the command line, else from the environment (NOISEGATE_PORT=8443), else from
a file of settings, else as usual.
"""

import asyncio
import gc
import logging
import os
import signal
import ssl
import sys
import threading
import tomllib
from asyncio import TaskGroup
from collections.abc import Callable, Coroutine, Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, Self, final

from noisegate.errors import OperatorError, SpecError, stumbled
from noisegate.extras import extra
from noisegate.frozen import dataclass, fields
from noisegate.ledger.signing import Signer
from noisegate.server.oidc import Issuer, SignIn
from noisegate.server.service import Service
from noisegate.server.settings import Settings, is_here

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

PREFIX: Final = "NOISEGATE_"
_SWITCH: Final = 0.0005  # seconds until a thread that works lets the one that answers go on
_GARBAGE: Final = 20_000, 20, 20  # new objects until cycles are looked for, and how far back
_PATIENCE: Final = 90  # seconds in which open requests end
_IDLE: Final = 75  # seconds that a connection is kept for the next request
_OPEN_MAX: Final = 2000  # connections at once
LOCAL: Final = ("localhost", "127.0.0.1", "[::1]")
_USUAL: Final = Settings()
_NOT_GIVEN: Final[tuple[object, ...]] = (None, [], ())
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """What an operator can choose; see `Settings` for the last four.

    ``state``: where people, tokens, runs and the access log are kept, a file or a Postgres address.
    ``behind_proxy``: somebody else speaks TLS with the callers. ``signing_key``: a private key,
    see `ledger.signing`. ``oidc_…``: see `oidc.Issuer`; with ``oidc_client``, browsers sign in
    there, see `oidc.SignIn`. ``hosts``: the names by which callers reach the service; a request for
    any other is refused, so that a page of somebody else's cannot have its own name lead here (DNS
    rebinding). By default those of this machine where it listens there alone, else any.
    """

    policies: tuple[Path, ...] = ()
    host: str = "127.0.0.1"
    port: int = 8080
    pg_port: int | None = None
    state: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    behind_proxy: bool = False
    signing_key: Path | None = None
    quantum: float = _USUAL.quantum
    workers: int = _USUAL.workers
    approve_above: Fraction | None = _USUAL.approve_above
    kept: int = _USUAL.kept
    oidc_issuer: str | None = None
    oidc_audience: str | None = None
    oidc_keys: str | None = None
    oidc_claim: str = "email"
    oidc_unverified: bool = False
    oidc_client: str | None = None
    oidc_secret: str | None = None
    hosts: tuple[str, ...] = ()

    @classmethod
    def chosen(cls, file: Path | None = None, **options: object) -> Self:
        """What was chosen. An option that is None or an empty list was not given."""
        names = {each.name for each in fields(cls)}
        said = {} if file is None else _from_file(file, names)
        for name in names:
            if (text := os.environ.get(f"{PREFIX}{name.upper()}")) is not None:
                said[name] = _read(name, text, f"{PREFIX}{name.upper()}")
        given = {name: each for name, each in options.items() if each not in _NOT_GIVEN}
        for name, each in given.items():
            said[name] = _read(name, each, f"--{name.replace('_', '-')}")
        made = cls(**said)
        made._require()
        return made

    @property
    def settings(self) -> Settings:
        """Those of the service itself."""
        return Settings(
            quantum=self.quantum, workers=self.workers, approve_above=self.approve_above,
            kept=self.kept,
        )  # fmt: skip

    @property
    def known_hosts(self) -> frozenset[str] | None:
        """The names that requests may be for; None: any."""
        if self.hosts:
            return frozenset(name.lower() for name in (*self.hosts, *LOCAL))
        return frozenset(LOCAL) if is_here(self.host) and not self.behind_proxy else None

    @property
    def issuer(self) -> Issuer | None:
        """Where people sign in instead; None: here alone."""
        said = self.oidc_issuer, self.oidc_audience, self.oidc_keys
        if said == (None, None, None):
            return None
        issuer, audience, keys = said
        if issuer is None or audience is None or keys is None:
            raise SpecError(
                "A provider needs a name, an audience and keys.",
                fix="Set oidc_issuer, oidc_audience and oidc_keys.",
                about="oidc",
            )
        return Issuer(
            issuer=issuer, audience=audience, keys=keys, claim=self.oidc_claim,
            unverified=self.oidc_unverified,
        )  # fmt: skip

    @property
    def sign_in(self) -> SignIn | None:
        """How browsers sign in at the provider; None: with tokens and passwords alone."""
        issuer = self.issuer
        if self.oidc_client is None and self.oidc_secret is None:
            return None
        if issuer is None or self.oidc_client is None:
            raise SpecError(
                "Browsers need to know the provider that they sign in at.",
                fix="Set oidc_client beside oidc_issuer, oidc_audience and oidc_keys.",
                about="oidc",
            )
        return SignIn(issuer=issuer, client=self.oidc_client, secret=self.oidc_secret)

    @property
    def signer(self) -> Signer | None:
        """What answers, cards, releases and heads are signed with; None: they are not."""
        return None if self.signing_key is None else Signer.load(self.signing_key)

    @property
    def tls(self) -> ssl.SSLContext | None:
        """How callers are spoken with; None: in the clear."""
        if self.tls_cert is None:
            return None
        made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            made.load_cert_chain(self.tls_cert, self.tls_key)
        except (OSError, ssl.SSLError):
            raise OperatorError(
                "The certificate or its key cannot be read.",
                fix="Give PEM files that belong together: --tls-cert, --tls-key.",
                about="tls",
            ) from None
        return made

    def _require(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SpecError(
                "A certificate needs its key.", fix="Give --tls-cert and --tls-key.", about="tls"
            )
        if self.tls_cert is None and not self.behind_proxy and not is_here(self.host):
            raise SpecError(
                "Tokens and answers would cross the network in the clear.",
                fix="Give --tls-cert and --tls-key, or --behind-proxy where a proxy speaks TLS.",
                about="clear",
            )
        ports = [self.port, *(() if self.pg_port is None else (self.pg_port,))]
        if not all(0 <= port < 1 << 16 for port in ports):
            raise SpecError("A port is out of range.", fix="Use 0 to 65535.", about="port")
        if self.workers < 1 or self.kept < 1 or not 0 <= self.quantum <= 60:
            raise SpecError(
                "A setting is out of range.",
                fix="Use workers and kept of at least 1, and a quantum of 0 to 60 seconds.",
                about="setting",
            )


# other faces: one line each


def pages(service: Service, serving: Serving) -> "Sequence[BaseRoute]":
    """Routes beside those of the API, looked at after them."""
    from starlette.routing import Route  # noqa: PLC0415 - for those who serve

    from noisegate.server.agents import AgentsApp  # noqa: PLC0415
    from noisegate.server.console import console_routes  # noqa: PLC0415

    agents = Route("/mcp", AgentsApp(service))
    proxied, sign_in = serving.behind_proxy, serving.sign_in
    return [agents, *console_routes(service, proxied=proxied, sign_in=sign_in)]


def servers(
    service: Service, serving: Serving, tls: ssl.SSLContext | None
) -> list[Coroutine[Any, Any, object]]:
    """Servers beside that of HTTP: each runs until it is cancelled."""
    if serving.pg_port is None:
        return []
    from noisegate.server.wire.serving import run_wire  # noqa: PLC0415 - only if it listens

    return [run_wire(service, serving.host, serving.pg_port, tls)]


# from the start to the end


def serve(
    service: Service, serving: Serving, *, started: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is asked to stop; then finish what is being worked on.

    ``started`` is called with the address.
    """
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _leave)
    sys.setswitchinterval(_SWITCH)
    try:
        service.open_shares()
        gc.freeze()  # what is there now stays: to look through it takes a third of a second
        gc.set_threshold(*_GARBAGE)
        asyncio.run(_serve(service, serving, started))
    finally:
        gc.unfreeze()
        service.close()


def _leave(*_: object) -> NoReturn:
    """Let go of everything on the way out.

    The server of HTTP ends by sending itself the signal that it was stopped by, and a process that
    is ended by it would leave questions, files and the store as they are.
    """
    raise SystemExit(0)


async def _serve(service: Service, serving: Serving, started: Callable[[str], None] | None) -> None:
    uvicorn: Any = extra("uvicorn", "The service")
    from noisegate.server.http import http_app  # noqa: PLC0415 - starlette may be missing

    tls, app = serving.tls, http_app(service, pages(service, serving), hosts=serving.known_hosts)
    logging.getLogger("uvicorn.error").addFilter(in_public_terms)
    config = uvicorn.Config(
        app, host=serving.host, port=serving.port, log_config=None,
        access_log=False, server_header=False, proxy_headers=False, lifespan="off",
        ssl_certfile=serving.tls_cert, ssl_keyfile=serving.tls_key, limit_concurrency=_OPEN_MAX,
        timeout_graceful_shutdown=_PATIENCE, timeout_keep_alive=_IDLE,
    )  # fmt: skip
    server = uvicorn.Server(config)
    async with TaskGroup() as tasks:
        others = [tasks.create_task(each) for each in servers(service, serving, tls)]
        if started is not None:
            tasks.create_task(_tell(server, serving, started))
        await server.serve()
        for each in others:
            each.cancel()


def in_public_terms(record: logging.LogRecord) -> bool:
    """A line of the log without the words of an unexpected error, which may quote a row."""
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = str(stumbled(record.exc_info[1])), ()
        record.exc_info = None
    return True


async def _tell(server: Any, serving: Serving, started: Callable[[str], None]) -> None:  # noqa: ANN401 - uvicorn's
    """Say where the service is, as soon as it is there."""
    while not server.started:
        if server.should_exit:
            return
        await asyncio.sleep(0.02)
    port = server.servers[0].sockets[0].getsockname()[1]
    host = f"[{serving.host}]" if ":" in serving.host else serving.host
    started(f"{'http' if serving.tls_cert is None else 'https'}://{host}:{port}")


# what is said


def _from_file(file: Path, names: set[str]) -> dict[str, Any]:
    """Settings of a TOML file; its paths are beside it."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise SpecError(
            f"{file.name!r} cannot be read as TOML.", fix="See docs/service.md.", about="file"
        ) from None
    if unknown := found.keys() - names:
        raise SpecError(
            f"{file.name!r} has an unknown setting: {min(unknown)!r}.",
            fix=f"Use {', '.join(sorted(names))}.",
            about="setting",
        )
    read = {name: _read(name, value, name) for name, value in found.items()}
    here = file.resolve().parent
    for name in ("tls_cert", "tls_key", "signing_key"):
        if read.get(name) is not None:
            read[name] = here / read[name]
    if "policies" in read:
        read["policies"] = tuple(here / each for each in read["policies"])
    return read


def _read(name: str, value: Any, said: str) -> Any:  # noqa: ANN401 - of its own kind
    """A choice in the type of its field."""
    try:
        return _READ.get(name, str)(value)
    except (TypeError, ValueError, ArithmeticError):
        raise SpecError(
            f"{said} is not as it should be.", fix="See docs/service.md.", about="setting"
        ) from None


def _flag(value: object) -> bool:
    text = str(value).lower()
    if text not in (*_TRUE, *_FALSE):
        raise ValueError
    return text in _TRUE


def _paths(value: object) -> tuple[Path, ...]:
    listed = value.split(os.pathsep) if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(map(Path, listed))


def _names(value: object) -> tuple[str, ...]:
    listed = value.split(",") if isinstance(value, str) else list(value)  # type: ignore[call-overload]
    return tuple(str(each).strip() for each in listed)


_READ: Final[Mapping[str, Callable[[Any], Any]]] = {
    "policies": _paths, "port": int, "pg_port": int, "tls_cert": Path, "tls_key": Path,
    "signing_key": Path, "behind_proxy": _flag, "quantum": float, "workers": int,
    "approve_above": Fraction, "kept": int, "hosts": _names,
}  # fmt: skip
