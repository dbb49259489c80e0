"""Sandbar from Python: one file, standard library only, Python 3.9 or newer.

    export SANDBAR_URL=http://127.0.0.1:8787 SANDBAR_TOKEN=...      # sandbar token
    curl -fsS "$SANDBAR_URL/sdk/sandbar.py" -o sandbar.py

    from sandbar import Sandbox

    with Sandbox.create(runtime="python3.13", network="deny-all") as box:     # stopped at the end of the block
        box.write("main.py", "print(6 * 7)")
        result = box.run(["python3", "main.py"], timeout_ms=15_000)
        print(result.exit_code, result.stdout, result.stderr)
        print(box.run_code("x = 20 + 1\nx * 2").text)                         # variables live on in the context

A list is a program and its arguments, a str is a line for the shell. A program's non-zero exit is a result, not an
exception, unless check=True. Everything else that goes wrong is a SandbarError. Objects may be shared between threads.
"""
from __future__ import annotations

import base64
import gzip
import http.client
import io
import json
import os
import posixpath
import socket
import tarfile
import time
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union
from urllib.parse import quote, urlencode, urlsplit

__all__ = [
    "Sandbox", "Command", "Result", "Output", "CodeResult", "Snapshot", "Client", "SandbarError", "ConnectionFailed",
    "StreamCut", "ApiError", "InvalidRequest", "NotAllowed", "NotFound", "Conflict", "Stopped", "RateLimited",
    "ServerError", "FileMissing", "CommandFailed",
]

CONNECT_SECONDS = 30
ANSWER_SECONDS = 600

Cmd = Union[str, Sequence[str]]
Content = Union[str, bytes]


class SandbarError(Exception):
    """Whatever goes wrong here."""


class ConnectionFailed(SandbarError):
    """No server, or it went away."""


class StreamCut(SandbarError):
    """An answer ended before it was complete."""


class ApiError(SandbarError):
    """The server said no: status, code, message."""

    def __init__(self, status: int, code: str, message: str):
        super().__init__(f"{message} ({status} {code})")
        self.status, self.code, self.message = status, code, message


class InvalidRequest(ApiError):
    """400, 413, 422: the message names the field and the fix."""


class NotAllowed(ApiError):
    """401, 403"""


class NotFound(ApiError):
    """404"""


class Conflict(ApiError):
    """409"""


class Stopped(ApiError):
    """410: the sandbox has stopped, or its snapshot is gone."""


class RateLimited(ApiError):
    """429"""


class ServerError(ApiError):
    """5xx"""


class FileMissing(SandbarError, FileNotFoundError):
    """There is no such file in the sandbox."""


class CommandFailed(SandbarError):
    """run(..., check=True) ended with another exit code than 0."""

    def __init__(self, result: "Result"):
        tail = result.stderr.strip().splitlines()[-1:] or [""]
        super().__init__(f"exit code {result.exit_code}: {tail[0]}")
        self.result = result


_BY_STATUS = {400: InvalidRequest, 413: InvalidRequest, 422: InvalidRequest, 401: NotAllowed, 403: NotAllowed,
              404: NotFound, 409: Conflict, 410: Stopped, 429: RateLimited}


def _error_of(status: int, body: bytes) -> ApiError:
    code, message = "unknown", body[:200].decode("utf-8", "replace") or "no reason given"
    try:
        error = json.loads(body)["error"]
        code, message = str(error["code"]), str(error["message"])
    except (ValueError, KeyError, TypeError):
        pass
    kind = _BY_STATUS.get(status, ServerError if status >= 500 else ApiError)
    if code == "snapshot_not_found":
        kind = Stopped  # stopped for good: there is nothing to go on from
    return kind(status, code, message)


def _without_none(**fields: Any) -> Dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class Client:
    """Where the server is and who asks. Every call uses a connection of its own."""

    def __init__(self, url: Optional[str] = None, token: Optional[str] = None, team: Optional[str] = None,
                 project: Optional[str] = None):
        self.url = (url or os.environ.get("SANDBAR_URL", "")).rstrip("/")
        self.token = token or os.environ.get("SANDBAR_TOKEN") or os.environ.get("VERCEL_OIDC_TOKEN", "")
        if not self.url:
            raise SandbarError("SANDBAR_URL is not set; `sandbar up` prints it")
        if not self.token:
            raise SandbarError("SANDBAR_TOKEN is not set; `sandbar token` prints it")
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SandbarError(f"SANDBAR_URL is no http(s) URL: {self.url}")
        self._parts = parts
        claims = self._claims()
        self.team = team or claims.get("owner_id")
        self.project = project or claims.get("project_id")

    def _claims(self) -> Dict[str, Any]:
        pieces = self.token.split(".")
        if len(pieces) != 3:
            return {}
        try:
            return json.loads(base64.urlsafe_b64decode(pieces[1] + "=" * (-len(pieces[1]) % 4)))
        except ValueError:
            return {}

    def connect(self, seconds: Optional[float]) -> http.client.HTTPConnection:
        secure = self._parts.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        connection = kind(self._parts.hostname, self._parts.port, timeout=CONNECT_SECONDS)
        try:
            connection.connect()
        except OSError as error:
            raise ConnectionFailed(f"no answer from {self.url} ({error}); is the server running? sandbar up") from error
        connection.sock.settimeout(seconds)
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def send(self, method: str, path: str, body: Any = None, *, query: Optional[Mapping[str, Any]] = None,
             headers: Optional[Mapping[str, str]] = None, seconds: Optional[float] = ANSWER_SECONDS,
             ) -> Tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        """The answer's head; errors are raised. The caller closes the connection."""
        asked = _without_none(teamId=self.team, projectId=self.project, **(query or {}))
        target = self._parts.path + path + ("?" + urlencode(asked) if asked else "")
        all_headers = {"authorization": f"Bearer {self.token}", "user-agent": "sandbar-python"}
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            all_headers["content-type"] = "application/json"
        all_headers.update(headers or {})
        connection = self.connect(seconds)
        try:
            connection.request(method, target, body=body, headers=all_headers)
            response = connection.getresponse()
            if response.status >= 400:
                raise _error_of(response.status, response.read())
            return connection, response
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ConnectionFailed(f"{method} {path}: {error!r}") from error
        except BaseException:
            connection.close()
            raise

    def read(self, method: str, path: str, body: Any = None, **options: Any) -> bytes:
        connection, response = self.send(method, path, body, **options)
        try:
            return response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()

    def call(self, method: str, path: str, body: Any = None, **options: Any) -> Dict[str, Any]:
        text = self.read(method, path, body, **options)
        return json.loads(text) if text else {}

    def lines(self, method: str, path: str, body: Any = None, **options: Any) -> Iterator[Dict[str, Any]]:
        """The values of an NDJSON answer as they arrive; closing the iterator closes the connection."""
        connection, response = self.send(method, path, body, seconds=None, **options)
        try:
            for line in response:
                if line.strip():
                    yield json.loads(line)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise StreamCut(f"{method} {path}: {error!r}") from error
        finally:
            connection.close()


@dataclass(frozen=True)
class Result:
    """A finished command."""
    exit_code: int
    stdout: str
    stderr: str
    duration_ms: Optional[int] = None
    id: str = ""


@dataclass(frozen=True)
class Output:
    """A piece of output: stream is "stdout" or "stderr"."""
    stream: str
    text: str


@dataclass
class CodeResult:
    """A finished cell. `text` is its last expression; `results` and `displays` are dicts by media type."""
    status: str = "killed"
    stdout: str = ""
    stderr: str = ""
    text: Optional[str] = None
    results: List[Dict[str, Any]] = field(default_factory=list)
    displays: List[Dict[str, Any]] = field(default_factory=list)
    error: Optional[Dict[str, Any]] = None
    artifacts: List[Dict[str, Any]] = field(default_factory=list)
    context: str = ""
    execution_count: int = 0
    duration_ms: Optional[int] = None
    end: Dict[str, Any] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    def png(self) -> Optional[bytes]:
        """The first picture that the cell made."""
        for data in self.displays + self.results:
            if "image/png" in data:
                return base64.b64decode(data["image/png"])
        return None


def _program(cmd: Cmd) -> Tuple[str, List[str]]:
    if isinstance(cmd, str):
        return "sh", ["-c", cmd]
    parts = [str(part) for part in cmd]
    if not parts:
        raise ValueError("cmd is an empty list")
    return parts[0], parts[1:]


def _piece(line: Dict[str, Any]) -> Output:
    if line.get("stream") == "error":
        data = line.get("data") or {}
        raise StreamCut(f"{data.get('message')} ({data.get('code')})")
    return Output(line["stream"], line["data"])


class Command:
    """A detached command."""

    def __init__(self, client: Client, session: str, fields: Dict[str, Any]):
        self._client, self._fields = client, fields
        self._path = f"/v2/sandboxes/sessions/{quote(session, safe='')}/cmd/{quote(fields['id'], safe='')}"

    @property
    def id(self) -> str:
        return self._fields["id"]

    @property
    def exit_code(self) -> Optional[int]:
        """None while it runs, as far as it is known here."""
        return self._fields.get("exitCode")

    def logs(self) -> Iterator[Output]:
        """Its output from the start, then as it comes."""
        for line in self._client.lines("GET", self._path + "/logs"):
            yield _piece(line)

    def wait(self) -> Result:
        answer = self._client.call("GET", self._path, query={"wait": "true"}, seconds=None)
        self._fields = answer["command"]
        text = {"stdout": "", "stderr": ""}
        for piece in self.logs():
            text[piece.stream] += piece.text
        return Result(self._fields["exitCode"], text["stdout"], text["stderr"], self._fields.get("durationMs"), self.id)

    def kill(self, signal: int = 15) -> None:
        self._client.call("POST", self._path + "/kill", {"signal": int(signal)})


class Stream:
    """Iterate over it for the output; afterwards `result` is there."""

    def __init__(self, lines: Iterator[Dict[str, Any]]):
        self._lines = lines
        self._text = {"stdout": [], "stderr": []}
        self.result: Optional[Result] = None

    def __iter__(self) -> Iterator[Output]:
        for line in self._lines:
            command = line.get("command")
            if command is None:
                piece = _piece(line)
                self._text[piece.stream].append(piece.text)
                yield piece
            elif command.get("exitCode") is not None:
                out, err = "".join(self._text["stdout"]), "".join(self._text["stderr"])
                self.result = Result(command["exitCode"], out, err, command.get("durationMs"), command["id"])
        if self.result is None:
            raise StreamCut("the answer ended before the command did")


class Snapshot:
    def __init__(self, client: Client, fields: Dict[str, Any]):
        self._client, self.fields = client, fields

    @property
    def id(self) -> str:
        return self.fields["id"]

    @classmethod
    def get(cls, snapshot_id: str, *, client: Optional[Client] = None) -> "Snapshot":
        client = client or Client()
        return cls(client, client.call("GET", f"/v2/sandboxes/snapshots/{quote(snapshot_id, safe='')}")["snapshot"])

    @classmethod
    def list(cls, *, client: Optional[Client] = None, limit: int = 50) -> List["Snapshot"]:
        client = client or Client()
        return [cls(client, s) for s in client.call("GET", "/v2/sandboxes/snapshots", query={"limit": limit})["snapshots"]]

    def delete(self) -> None:
        self.fields = self._client.call("DELETE", f"/v2/sandboxes/snapshots/{quote(self.id, safe='')}")["snapshot"]


def _policy(network: Any) -> Any:
    if network is None or isinstance(network, dict):
        return {"mode": "deny-all"} if network in ({"allow": []}, {"allow": {}}) else network
    if network in (False, "none", "deny-all"):
        return {"mode": "deny-all"}
    if network in (True, "allow-all"):
        return {"mode": "allow-all"}
    if isinstance(network, (list, tuple)):
        return {"allow": list(network)} if network else {"mode": "deny-all"}
    raise ValueError(f'network: expected "deny-all", "allow-all", a list of hosts or a policy, got {network!r}')


class Sandbox:
    """A machine. Use create(), get() or fork(); as a context manager it is stopped at the end."""

    def __init__(self, client: Client, answer: Dict[str, Any]):
        self._client = client
        self.fields: Dict[str, Any] = {}
        self.session: Dict[str, Any] = {}
        self.routes: List[Dict[str, Any]] = []
        self._take(answer)

    def _take(self, answer: Dict[str, Any]) -> None:
        self.fields = answer.get("sandbox") or self.fields
        self.session = answer.get("session") or self.session
        self.routes = answer.get("routes", self.routes)

    @classmethod
    def create(cls, *, runtime: Optional[str] = None, image: Optional[str] = None, name: Optional[str] = None,
               network: Any = None, timeout_ms: Optional[int] = None, idle_timeout_ms: Optional[int] = None,
               env: Optional[Mapping[str, str]] = None, ports: Sequence[int] = (), vcpus: Optional[int] = None,
               memory: Optional[int] = None, tags: Optional[Mapping[str, str]] = None, persistent: Optional[bool] = None,
               source: Optional[Mapping[str, Any]] = None, snapshot: Union[str, Snapshot, None] = None,
               isolation: Union[int, str, Mapping[str, Any], None] = None,
               client: Optional[Client] = None) -> "Sandbox":
        """network: "deny-all", "allow-all", a list of hosts, or a policy; None is what the server is set to.
        isolation: a class (1 to 3), an engine's name, or {"minClass": …, "engine": …}: that, or more, or an error."""
        client = client or Client()
        if snapshot is not None:
            source = {"type": "snapshot", "snapshotId": snapshot.id if isinstance(snapshot, Snapshot) else snapshot}
        resources = _without_none(vcpus=vcpus, memory=memory) or None
        body = _without_none(projectId=client.project, runtime=runtime, image=image, name=name, env=env, tags=tags,
                             networkPolicy=_policy(network), timeout=timeout_ms, ports=list(ports), resources=resources,
                             persistent=persistent, source=source, __idleTimeoutMs=idle_timeout_ms, isolation=isolation)
        return cls(client, client.call("POST", "/v3/sandboxes" if runtime is None else "/v2/sandboxes", body))

    @classmethod
    def get(cls, name: str, *, resume: bool = False, client: Optional[Client] = None) -> "Sandbox":
        client = client or Client()
        query = {"resume": "true"} if resume else {}
        return cls(client, client.call("GET", f"/v2/sandboxes/{quote(name, safe='')}", query=query))

    @classmethod
    def list(cls, *, limit: int = 50, client: Optional[Client] = None) -> List[Dict[str, Any]]:
        return (client or Client()).call("GET", "/v2/sandboxes", query={"limit": limit})["sandboxes"]

    def fork(self, *, name: Optional[str] = None, network: Any = None, env: Optional[Mapping[str, str]] = None,
             timeout_ms: Optional[int] = None) -> "Sandbox":
        """A new sandbox from the newest snapshot of this one."""
        body = _without_none(name=name, networkPolicy=_policy(network), env=env, timeout=timeout_ms)
        return Sandbox(self._client, self._client.call("POST", self._sandbox_path("/fork"), body))

    def __enter__(self) -> "Sandbox":
        return self

    def __exit__(self, *_: Any) -> None:
        try:
            self.stop()
        except (Stopped, NotFound):
            pass  # it has gone by itself, or was deleted in the block

    def __repr__(self) -> str:
        return f"<Sandbox {self.name} {self.status}>"

    @property
    def name(self) -> str:
        return self.fields["name"]

    @property
    def status(self) -> str:
        return self.session.get("status", self.fields.get("status", "unknown"))

    @property
    def cwd(self) -> str:
        return self.session.get("cwd", "/vercel/sandbox")

    def _sandbox_path(self, tail: str = "") -> str:
        return f"/v2/sandboxes/{quote(self.name, safe='')}{tail}"

    def _session_path(self, tail: str) -> str:
        return f"/v2/sandboxes/sessions/{quote(self.session['id'], safe='')}{tail}"

    def _resume(self) -> None:
        self._take(self._client.call("GET", self._sandbox_path(), query={"resume": "true"}))

    def _awake(self, what: Callable[[], Any]) -> Any:
        """A persistent sandbox that has stopped goes on from its files, as it does with the official client."""
        try:
            return what()
        except ApiError as error:
            if error.code not in ("sandbox_stopped", "sandbox_stopping", "sandbox_snapshotting"):
                raise
        self._resume()
        return what()

    # Commands

    def _command(self, cmd: Cmd, cwd: Optional[str], env: Optional[Mapping[str, str]], sudo: bool,
                 timeout_ms: Optional[int], **more: Any) -> Dict[str, Any]:
        program, args = _program(cmd)
        return _without_none(command=program, args=args, cwd=cwd, env=dict(env or {}), sudo=sudo, timeout=timeout_ms, **more)

    def stream(self, cmd: Cmd, *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None, sudo: bool = False,
               timeout_ms: Optional[int] = None) -> Stream:
        """The output as it comes: `for piece in (s := box.stream("make")): ...`, then s.result."""
        body = self._command(cmd, cwd, env, sudo, timeout_ms, wait=True, logs=True)

        return Stream(self._awake(lambda: self._begin(self._session_path("/cmd"), body)))

    def _begin(self, path: str, body: Dict[str, Any]) -> Iterator[Dict[str, Any]]:
        lines = self._client.lines("POST", path, body)
        first = next(lines, {})  # here errors are raised, while there is still something to retry
        return _chain(first, lines)

    def run(self, cmd: Cmd, *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None, sudo: bool = False,
            timeout_ms: Optional[int] = None, check: bool = False,
            on_output: Optional[Callable[[Output], None]] = None) -> Result:
        """Runs to the end. 137 is the exit code of a command that its timeout ended."""
        stream = self.stream(cmd, cwd=cwd, env=env, sudo=sudo, timeout_ms=timeout_ms)
        for piece in stream:
            if on_output:
                on_output(piece)
        result = stream.result
        assert result is not None
        if check and result.exit_code != 0:
            raise CommandFailed(result)
        return result

    def start(self, cmd: Cmd, *, cwd: Optional[str] = None, env: Optional[Mapping[str, str]] = None, sudo: bool = False,
              timeout_ms: Optional[int] = None) -> Command:
        """Detached: returns at once."""
        body = self._command(cmd, cwd, env, sudo, timeout_ms)
        answer = self._awake(lambda: self._client.call("POST", self._session_path("/cmd"), body))
        return Command(self._client, self.session["id"], answer["command"])

    # Files. Relative paths are relative to cwd.

    def read(self, path: str) -> bytes:
        try:
            return self._awake(lambda: self._client.read("POST", self._session_path("/fs/read"), {"path": path}))
        except NotFound as error:
            raise FileMissing(2, "there is no such file in the sandbox", path) from error

    def read_text(self, path: str, encoding: str = "utf-8") -> str:
        return self.read(path).decode(encoding)

    def write(self, path: str, content: Content, *, mode: int = 0o644) -> None:
        self.write_files({path: content}, mode=mode)

    def write_files(self, files: Mapping[str, Content], *, mode: int = 0o644) -> None:
        def send() -> Any:
            headers = {"content-type": "application/gzip", "x-cwd": "/"}
            return self._client.call("POST", self._session_path("/fs/write"), self._archive(files, mode), headers=headers)
        self._awake(send)

    def _archive(self, files: Mapping[str, Content], mode: int) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as archive:
            for path, content in files.items():
                data = content.encode() if isinstance(content, str) else bytes(content)
                entry = tarfile.TarInfo(posixpath.normpath(posixpath.join(self.cwd, path)).lstrip("/"))
                entry.size, entry.mode, entry.mtime = len(data), mode, int(time.time())
                archive.addfile(entry, io.BytesIO(data))
        return gzip.compress(buffer.getvalue(), compresslevel=1)

    def mkdir(self, path: str, *, parents: bool = False) -> None:
        body = {"path": path, "recursive": parents}
        self._awake(lambda: self._client.call("POST", self._session_path("/fs/mkdir"), body))

    # Cells in contexts that keep their variables

    def run_code(self, code: str, *, language: Optional[str] = None, context: Optional[str] = None,
                 timeout_ms: Optional[int] = None, env: Optional[Mapping[str, str]] = None, cwd: Optional[str] = None,
                 on_event: Optional[Callable[[Dict[str, Any]], None]] = None) -> CodeResult:
        """language: python (the default), javascript, typescript or bash; each has a default context."""
        if language is None and context is None:
            language = "python"
        body = _without_none(language=language, code=code, context=context, timeoutMs=timeout_ms, env=env, cwd=cwd)
        cell = CodeResult()
        for event in self._awake(lambda: self._begin(self._native("/code"), body)):
            if on_event:
                on_event(event)
            kind = event.get("type")
            if kind in ("stdout", "stderr"):
                setattr(cell, kind, getattr(cell, kind) + event["text"])
            elif kind == "result":
                cell.results.append(event["data"])
            elif kind == "display":
                cell.displays.append(event["data"])
            elif kind == "error":
                cell.error = {key: event.get(key) for key in ("name", "value", "traceback")}
            elif kind == "end":
                cell.end, cell.status, cell.context = event, event["status"], event.get("context", "")
                cell.execution_count = event.get("executionCount", 0)
                cell.duration_ms, cell.artifacts = event.get("durationMs"), event.get("artifacts", [])
        if not cell.end:
            raise StreamCut("the answer ended before the cell did")
        if cell.results:
            cell.text = cell.results[-1].get("text/plain")
        return cell

    def _native(self, tail: str) -> str:
        return f"/x/v1/sandboxes/{quote(self.name, safe='')}{tail}"

    def contexts(self) -> List[Dict[str, Any]]:
        return self._client.call("GET", self._native("/contexts"))["contexts"]

    def create_context(self, language: str = "python", *, cwd: Optional[str] = None) -> Dict[str, Any]:
        body = _without_none(language=language, cwd=cwd)
        return self._client.call("POST", self._native("/contexts"), body)["context"]

    def interrupt(self, context: str) -> None:
        self._client.call("POST", self._native(f"/contexts/{quote(context, safe='')}/interrupt"))

    def restart(self, context: str) -> None:
        self._client.call("POST", self._native(f"/contexts/{quote(context, safe='')}/restart"))

    def delete_context(self, context: str) -> None:
        self._client.call("DELETE", self._native(f"/contexts/{quote(context, safe='')}"))

    # Ports

    def domain(self, port: int) -> str:
        """The URL of a published port."""
        for route in self.routes:
            if route["port"] == port:
                return route["url"].rstrip("/")
        raise SandbarError(f"port {port} is not published; create the sandbox with ports=[{port}]")

    def fetch(self, port: int, path: str = "/", *, method: str = "GET", body: Optional[bytes] = None,
              headers: Optional[Mapping[str, str]] = None) -> Tuple[int, bytes]:
        """A request to a published port, also where names under .localhost do not resolve: (status, body)."""
        host = urlsplit(self.domain(port)).netloc
        connection = self._client.connect(ANSWER_SECONDS)
        try:
            connection.request(method, path, body=body, headers={**(headers or {}), "host": host})
            response = connection.getresponse()
            return response.status, response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ConnectionFailed(f"port {port}: {error!r}") from error
        finally:
            connection.close()

    # Life

    def set_network(self, network: Any) -> None:
        self._awake(lambda: self._client.call("POST", self._session_path("/network-policy"), _policy(network)))

    def extend_timeout(self, milliseconds: int) -> None:
        body = {"duration": milliseconds}
        self._take(self._client.call("POST", self._session_path("/extend-timeout"), body))

    def snapshot(self, *, expiration_ms: Optional[int] = None) -> Snapshot:
        """Freezes the files; the sandbox stops and goes on at the next call."""
        body = _without_none(expiration=expiration_ms) or None
        answer = self._awake(lambda: self._client.call("POST", self._session_path("/snapshot"), body))
        self.session = answer.get("session", self.session)
        return Snapshot(self._client, answer["snapshot"])

    def stop(self) -> None:
        """Ends every process. A persistent sandbox keeps its files."""
        self._take(self._client.call("POST", self._session_path("/stop")))

    def delete(self) -> None:
        self._client.call("DELETE", self._sandbox_path())


def _chain(first: Any, rest: Iterator[Any]) -> Iterator[Any]:
    yield first
    yield from rest
