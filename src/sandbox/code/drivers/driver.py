# Runs cells of Python for run_code (docs/run-code.md). Standard library only, Python 3.11 or newer; started as
# `python3 -c <this text>`. Requests come on descriptor 3 and events go back there as lines of JSON, so that nothing a
# program prints can be taken for one. Modules are imported when they are needed: a cold context answers at once.
def _driver():
    # Parts of the interpreter itself: `signal` and `ast` would cost as much as its start.
    import _signal as signal, _thread as threads, os, sys, time
    from _ast import Expr, Expression

    ONLY_AST, TOP_LEVEL_AWAIT, IS_COROUTINE, COARSE_CLOCK = 0x400, 0x2000, 0x80, 5
    MAX_EVENT, MAX_TEXT = 6 << 20, 100_000
    MAX_ENTRIES, MAX_ARTIFACTS, MAX_HASHED = 10_000, 200, 64 << 20
    SKIPPED = {"node_modules", ".git", "__pycache__", ".venv", ".cache"}
    MAX_ROWS, MAX_COLUMNS = 1000, 100
    REPRS = (("_repr_html_", "text/html"), ("_repr_markdown_", "text/markdown"), ("_repr_svg_", "image/svg+xml"),
             ("_repr_png_", "image/png"), ("_repr_jpeg_", "image/jpeg"), ("_repr_json_", "application/json"),
             ("_repr_latex_", "text/latex"))

    # Out of the way of programs, and not handed on to what they start.
    try:
        channel = os.dup2(3, 1000, inheritable=False)
    except OSError:
        channel = os.dup(3)
    os.close(3)
    pid, ours = os.getpid(), globals()
    main_thread, lock = threads.get_ident(), threads.RLock()

    class State:
        interruptible = False  # a cell runs and was not interrupted yet
        sending = 0  # an event is being written: half a line must not stay behind
        pending = False
        loop = None
        sources = {}  # of cells, for tracebacks
        reported = {}  # path -> (size, ctime) of artifacts told before

    def on_interrupt(number, frame):
        if not State.interruptible:
            return
        if State.sending:
            State.pending = True
            return
        # Once per cell: the second one would hit our own code. Who ignores it is killed by the server.
        State.interruptible = False
        raise KeyboardInterrupt

    def quote(text):
        try:
            text.encode()
        except UnicodeEncodeError:
            text = text.encode("utf-8", "replace").decode()
        try:
            from _json import encode_basestring_ascii as encode
        except ImportError:
            from json import dumps as encode
        return encode(text)

    def dumps(value):
        if isinstance(value, str):
            return quote(value)
        import json
        return json.dumps(value, allow_nan=False)

    def send(line):
        data = memoryview(line.encode("ascii") + b"\n")
        own = threads.get_ident() == main_thread  # interrupts come to this one
        State.sending += own
        try:
            with lock:
                while data:
                    data = data[os.write(channel, data):]
        finally:
            State.sending -= own
        if own and State.pending and not State.sending:
            State.pending = False
            on_interrupt(0, None)

    def send_bundle(kind, data):
        parts = {mime: dumps(value) for mime, value in data.items()}
        while sum(map(len, parts.values())) > MAX_EVENT:
            largest = max(parts, key=lambda mime: len(parts[mime]))
            note = f"[{largest} of {len(parts.pop(largest))} bytes is too large to show]"
            parts["text/plain"] = quote(note)
        body = ",".join(f"{quote(mime)}:{text}" for mime, text in parts.items())
        flush()
        send(f'{{"type":"{kind}","data":{{{body}}}}}')

    def flush():
        for stream in {sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__}:
            try:
                stream.flush()
            except Exception:
                pass

    def cut(text):
        if len(text) <= MAX_TEXT:
            return text
        return text[:MAX_TEXT] + f"… [{len(text) - MAX_TEXT} characters more]"

    def encode_bytes(value):
        if isinstance(value, (bytes, bytearray, memoryview)):
            import binascii
            return binascii.b2a_base64(value, newline=False).decode("ascii")
        return value

    def cell_value(value):
        import math
        if value is None or isinstance(value, (bool, int)):
            return value if not isinstance(value, int) or abs(value) < 1 << 53 else str(value)
        if hasattr(value, "item"):  # numpy's scalars
            value = value.item()
        if isinstance(value, float):
            return value if math.isfinite(value) else None
        return value if isinstance(value, (bool, int)) else str(value)[:1000]

    def columns_of(frame):
        # A Series is a frame of one column.
        if hasattr(frame, "to_frame") and not hasattr(frame, "columns"):
            frame = frame.to_frame(name=frame.name if frame.name is not None else "value")
        rows, width = frame.shape
        out = []
        for i in range(min(width, MAX_COLUMNS)):
            column = frame.iloc[:MAX_ROWS, i]
            missing = column.isna().tolist()
            values = [None if gone else cell_value(v) for v, gone in zip(column.tolist(), missing)]
            out.append({"name": str(frame.columns[i]), "type": str(column.dtype), "values": values})
        return {"columns": out, "rows": rows, "truncated": rows > MAX_ROWS or width > MAX_COLUMNS}

    def png_of(figure):
        import io
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png", bbox_inches="tight")
        return buffer.getvalue()

    def bundle_of(value):
        kind = type(value)
        module = getattr(kind, "__module__", "") or ""
        data = {}
        if not isinstance(value, type):
            method = getattr(value, "_repr_mimebundle_", None)
            if callable(method):
                made = method()
                data.update((made[0] if isinstance(made, tuple) else made) or {})
            for name, mime in REPRS:
                method = getattr(value, name, None)
                made = method() if callable(method) else None
                if made is not None:
                    data.setdefault(mime, made[0] if isinstance(made, tuple) else made)
            if module.startswith("pandas.") and kind.__name__ in ("DataFrame", "Series"):
                data["application/vnd.sandbar.columns+json"] = columns_of(value)
            elif module.startswith("matplotlib.") and hasattr(value, "savefig"):
                data["image/png"] = png_of(value)
        data.setdefault("text/plain", repr(value))
        return {str(m): cut(v) if m == "text/plain" else encode_bytes(v) for m, v in data.items()}

    def display(*values, raw=False):
        """Shows values as the last expression of a cell is shown. raw=True: each is a dict of media type to data."""
        for value in values:
            send_bundle("display", {m: encode_bytes(v) for m, v in value.items()} if raw else bundle_of(value))

    def no_input(prompt=""):
        raise EOFError("input() has nobody to ask here: put the value into the code")

    def show_figures():
        plt = sys.modules.get("matplotlib.pyplot")
        if plt is None or not hasattr(plt, "get_fignums"):
            return
        for number in plt.get_fignums():
            figure = plt.figure(number)
            send_bundle("display", {"text/plain": repr(figure), "image/png": encode_bytes(png_of(figure))})
        plt.close("all")

    def is_open_figure(value):
        plt = sys.modules.get("matplotlib.pyplot")
        return plt is not None and hasattr(value, "savefig") and getattr(value, "number", None) in plt.get_fignums()

    def evaluate(code, scope):
        if not code.co_flags & IS_COROUTINE:
            return eval(code, scope)
        import asyncio
        if State.loop is None:
            State.loop = asyncio.new_event_loop()
            asyncio.set_event_loop(State.loop)
        task = State.loop.create_task(eval(code, scope))
        try:
            return State.loop.run_until_complete(task)
        except KeyboardInterrupt:
            task.cancel()
            try:
                State.loop.run_until_complete(task)
            except BaseException:
                pass
            raise

    def run(source, name, scope):
        if "matplotlib" in source:
            import warnings
            warnings.filterwarnings("ignore", message=".*non-interactive.*cannot be shown")
        tree = compile(source, name, "exec", ONLY_AST | TOP_LEVEL_AWAIT)
        last = None
        if tree.body and isinstance(tree.body[-1], Expr) and not source.rstrip().endswith(";"):
            last = Expression(tree.body.pop().value)
        if tree.body:
            evaluate(compile(tree, name, "exec", TOP_LEVEL_AWAIT), scope)
        if last is not None:
            value = evaluate(compile(last, name, "eval", TOP_LEVEL_AWAIT), scope)
            if value is not None and not is_open_figure(value):
                send_bundle("result", bundle_of(value))
        show_figures()

    def remember(name, count, source):
        old = f"<cell {count - 64}>"
        State.sources[name] = (len(source), None, source.splitlines(True), name)
        State.sources.pop(old, None)
        if lines := sys.modules.get("linecache"):
            lines.cache.pop(old, None)
            lines.cache.update(State.sources)

    def trim(error, seen):
        # Only the program's own frames and what they called, without ours at either end.
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            frames = error.__traceback__
            while frames is not None and not frames.tb_frame.f_code.co_filename.startswith("<cell "):
                frames = frames.tb_next
            error.__traceback__ = theirs = frames
            while frames is not None:
                if frames.tb_frame.f_globals is not ours:
                    theirs = frames
                frames = frames.tb_next
            if theirs is not None:
                theirs.tb_next = None
            trim(error.__cause__, seen)
            error = error.__context__

    def report(error):
        # True when the cell counts as good all the same.
        if isinstance(error, SystemExit) and not error.code:
            return True
        text = ""
        if not isinstance(error, SystemExit):
            import linecache, traceback
            linecache.cache.update(State.sources)
            trim(error, set())
            text = "".join(traceback.format_exception(error))
        value = str(error) if not isinstance(error, KeyboardInterrupt) else str(error) or "interrupted"
        if len(text) > 60_000:  # a deep recursion: both ends tell more than the middle
            text = text[:20_000] + "\n  […]\n" + text[-40_000:]
        flush()
        send(f'{{"type":"error","name":{quote(type(error).__name__)},"value":{quote(cut(value))},'
             f'"traceback":{quote(text)}}}')
        return False

    def digest(path, size, budget):
        if size > budget:
            return None
        try:
            from _sha2 import sha256
        except ImportError:
            from hashlib import sha256
        hasher = sha256()
        with open(path, "rb", buffering=0) as file:
            left = budget
            while left > 0 and (piece := file.read(min(left, 1 << 20))):
                hasher.update(piece)
                left -= len(piece)
        return hasher.hexdigest()

    def artifacts(top, since):
        """Regular files below `top` that were made or changed since; true when there are more than are told."""
        folders, entries, found = [top], 0, 0
        budget = MAX_HASHED
        while folders:
            try:
                listing = sorted(os.scandir(folders.pop()), key=lambda e: e.name)
            except OSError:
                continue
            for entry in listing:
                entries += 1
                if entries > MAX_ENTRIES or found > MAX_ARTIFACTS:
                    return True
                try:
                    if entry.is_dir(follow_symlinks=False):
                        # Where it may not write, it did not: images hold many files.
                        if entry.name not in SKIPPED and os.access(entry.path, os.W_OK):
                            folders.append(entry.path)
                        continue
                    about = entry.stat(follow_symlinks=False)
                    stamp = (about.st_size, about.st_ctime_ns)
                    if (not entry.is_file(follow_symlinks=False) or about.st_ctime_ns < since
                            or State.reported.get(entry.path) == stamp):
                        continue
                    sha = digest(entry.path, about.st_size, budget)
                except OSError:
                    continue
                budget -= about.st_size if sha else 0
                found += 1
                if len(State.reported) > 4 * MAX_ARTIFACTS:
                    State.reported.clear()
                State.reported[entry.path] = stamp
                tail = f',"sha256":"{sha}"' if sha else ""
                send(f'{{"type":"artifact","path":{quote(entry.path)},"size":{about.st_size}{tail}}}')
        return False

    def usage():
        import resource
        own, children = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        return cpu, max(own.ru_maxrss, children.ru_maxrss) * 1024

    def run_cell(count, source, cwd, env):
        name, ok, more = f"<cell {count}>", True, False
        before, since = usage()[0], time.clock_gettime_ns(COARSE_CLOCK)
        old_env = {key: os.environ.get(key) for key in env}
        signal.signal(signal.SIGINT, on_interrupt)
        State.pending = False
        home = top = None
        try:
            os.environ.update(env)
            try:
                home = os.getcwd()
                if cwd:
                    os.chdir(cwd)
                top = os.getcwd()
            except FileNotFoundError:
                if cwd:
                    raise
            remember(name, count, source)
            try:
                State.interruptible = True
                send('{"type":"begun"}')
                run(source, name, main.__dict__)
            finally:
                State.interruptible = False
        except BaseException as error:
            if os.getpid() != pid:
                os._exit(1)
            ok = report(error)
            if "matplotlib.pyplot" in sys.modules:
                sys.modules["matplotlib.pyplot"].close("all")
        if os.getpid() != pid:  # a fork that ran on to the end of the cell
            flush()
            os._exit(0)
        for key, value in old_env.items():
            if value is None:
                os.environ.pop(key, None)
            else:
                os.environ[key] = value
        flush()
        if top is not None:
            more = artifacts(top, since)
        if cwd and home is not None:
            os.chdir(home)
        after, peak = usage()
        send(f'{{"type":"end","status":"{"ok" if ok else "error"}","cpuMs":{int((after - before) * 1000)},'
             f'"maxRssBytes":{peak},"artifactsTruncated":{"true" if more else "false"}}}')

    main = type(sys)("__main__")
    main.__dict__["__builtins__"] = __builtins__
    sys.modules["__main__"] = main
    builtins = sys.modules["builtins"]
    builtins.display, builtins.input = display, no_input
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")
    os.environ.setdefault("MPLBACKEND", "Agg")
    signal.signal(signal.SIGINT, on_interrupt)

    buffered = b""

    def take(size):
        nonlocal buffered
        while len(buffered) < size:
            piece = os.read(channel, 1 << 16)
            if not piece:
                os._exit(0)
            buffered += piece
        taken, buffered = buffered[:size], buffered[size:]
        return taken

    while True:
        header = b""
        while not header.endswith(b"\n"):
            header += take(1)
        _, count, _, code_size, cwd_size, env_size = header.split()
        code = take(int(code_size)).decode()
        cwd = take(int(cwd_size)).decode()
        env = take(int(env_size))
        if env == b"{}":
            env = {}
        else:
            import json
            env = json.loads(env)
        run_cell(int(count), code, cwd, env)


_driver()
