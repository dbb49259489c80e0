"""The Python client against the server at SANDBAR_URL. Numbers are random, so that no answer can be canned."""
import json
import random
import socket
import threading
import unittest

import sandbar
from sandbar import Client, Sandbox, Snapshot


def number():
    return random.randrange(1, 10**9)


class WithBox(unittest.TestCase):
    runtime = "python3.13"

    @classmethod
    def setUpClass(cls):
        cls.box = Sandbox.create(runtime=cls.runtime, network="deny-all")

    @classmethod
    def tearDownClass(cls):
        cls.box.delete()


class Commands(WithBox):
    def test_waited(self):
        a, b = number(), number()
        result = self.box.run(["python3", "-c", f"import sys; print({a} + {b}); print('hm', file=sys.stderr); sys.exit(3)"])
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (3, f"{a + b}\n", "hm\n"))

    def test_a_line_is_for_the_shell_and_a_list_is_not(self):
        a = number()
        self.assertEqual(self.box.run(f"echo $(({a} * 2)) | cat").stdout, f"{a * 2}\n")
        self.assertEqual(self.box.run(["echo", "$HOME"]).stdout, "$HOME\n")

    def test_options(self):
        a = str(number())
        result = self.box.run("pwd; echo $V; id -u", cwd="/usr", env={"V": a}, sudo=True)
        self.assertEqual(result.stdout, f"/usr\n{a}\n0\n")
        self.assertEqual(self.box.run("sleep 1000", timeout_ms=300).exit_code, 137)

    def test_check(self):
        with self.assertRaises(sandbar.CommandFailed) as caught:
            self.box.run("echo why >&2; exit 7", check=True)
        self.assertEqual(caught.exception.result.exit_code, 7)
        self.assertIn("why", str(caught.exception))

    def test_streamed_while_it_runs(self):
        # The second line is written only after the first was read here.
        stream = self.box.stream("echo first; until [ -e go ]; do sleep 0.05; done; echo second")
        seen = []
        for piece in stream:
            seen.append((piece.stream, piece.text))
            if piece.text == "first\n":
                self.box.write("go", "")
        self.assertEqual(seen, [("stdout", "first\n"), ("stdout", "second\n")])
        self.assertEqual((stream.result.exit_code, stream.result.stdout), (0, "first\nsecond\n"))

    def test_detached(self):
        command = self.box.start("echo out; echo err >&2; exit 5")
        result = command.wait()
        self.assertEqual((result.exit_code, result.stdout, result.stderr), (5, "out\n", "err\n"))
        self.assertEqual(command.exit_code, 5)
        endless = self.box.start(["sleep", "100000"])
        self.assertIsNone(endless.exit_code)
        endless.kill(9)
        self.assertEqual(endless.wait().exit_code, 137)

    def test_much_output_of_any_letters(self):
        result = self.box.run(["python3", "-c", "print('ä€😀' * 200000)"])
        self.assertEqual(result.stdout, "ä€😀" * 200000 + "\n")

    def test_threads_share_a_sandbox(self):
        numbers = [number() for _ in range(8)]
        answers = {}
        threads = [threading.Thread(target=lambda n=n: answers.update({n: self.box.run(["echo", str(n)]).stdout})) for n in numbers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(answers, {n: f"{n}\n" for n in numbers})


class Files(WithBox):
    def test_write_and_read(self):
        data = bytes(random.randrange(256) for _ in range(100_000))
        self.box.write("deep/down/data.bin", data)
        self.assertEqual(self.box.read("deep/down/data.bin"), data)
        self.assertEqual(self.box.read(self.box.cwd + "/deep/down/data.bin"), data)
        self.box.write_files({"a.txt": "ä", "b.sh": "#!/bin/sh\necho ran\n"}, mode=0o755)
        self.assertEqual(self.box.read_text("a.txt"), "ä")
        self.assertEqual(self.box.run(["./b.sh"]).stdout, "ran\n")

    def test_missing(self):
        with self.assertRaises(FileNotFoundError) as caught:
            self.box.read("nothing/here")
        self.assertIsInstance(caught.exception, sandbar.SandbarError)

    def test_mkdir(self):
        self.box.mkdir("made")
        self.box.mkdir("one/two/three", parents=True)
        self.assertEqual(self.box.run("ls -d made one/two/three").exit_code, 0)


class Life(unittest.TestCase):
    def test_context_manager_stops(self):
        with Sandbox.create(runtime="node24", network=[], persistent=False, tags={"by": "python"}) as box:
            self.assertEqual(box.status, "running")
            name = box.name
        self.assertEqual(box.status, "stopped")
        with self.assertRaises(ZeroDivisionError):
            with Sandbox.create(runtime="node24", network=[], persistent=False) as other:
                1 / 0
        self.assertEqual(Sandbox.get(other.name).status, "stopped")
        self.assertIn(name, [s["name"] for s in Sandbox.list(limit=50)])
        box.delete()
        other.delete()

    def test_files_survive_a_stop_and_the_next_call_goes_on(self):
        box = Sandbox.create(runtime="node24", network="deny-all")
        text = str(number())
        box.write("kept.txt", text)
        box.stop()
        self.assertEqual(box.run("cat kept.txt").stdout, text)
        again = Sandbox.get(box.name)
        self.assertEqual(again.read_text("kept.txt"), text)
        box.delete()
        with self.assertRaises(sandbar.NotFound):
            Sandbox.get(box.name)

    def test_snapshot_and_fork(self):
        box = Sandbox.create(runtime="node24", network="deny-all")
        text = str(number())
        box.write("seed.txt", text)
        snapshot = box.snapshot()
        self.assertIn(snapshot.id, [s.id for s in Snapshot.list(limit=50)])
        copy = Sandbox.create(snapshot=snapshot, network="deny-all")
        fork = box.fork(name=f"fork-{number()}")
        for other in (copy, fork):
            self.assertEqual(other.read_text("seed.txt"), text)
            other.delete()
        box.delete()
        Snapshot.get(snapshot.id).delete()

    def test_ports(self):
        box = Sandbox.create(runtime="python3.13", network="deny-all", ports=[8000])
        text = str(number())
        box.write("www/index.html", text)
        server = box.start("python3 -u -m http.server 8000 -d www")
        for piece in server.logs():
            if "Serving" in piece.text:
                break
        self.assertRegex(box.domain(8000), r"^https?://sb-[a-z0-9]+\.")
        self.assertEqual(box.fetch(8000), (200, text.encode()))
        self.assertEqual(box.fetch(8000, "/none")[0], 404)
        with self.assertRaisesRegex(sandbar.SandbarError, r"ports=\[9\]"):
            box.domain(9)
        box.delete()

    def test_network_and_timeout(self):
        box = Sandbox.create(runtime="node24", network=["a.example"], timeout_ms=60_000)
        self.assertEqual(box.fields["networkPolicy"]["allowedDomains"], ["a.example"])
        box.set_network({"allow": []})
        box.extend_timeout(30_000)
        self.assertEqual(box.session["timeout"], 90_000)
        self.assertEqual(Sandbox.get(box.name).session["networkPolicy"]["mode"], "deny-all")
        box.delete()


class Errors(unittest.TestCase):
    def test_typed(self):
        with self.assertRaises(sandbar.NotFound) as caught:
            Sandbox.get("nobody-has-this")
        self.assertEqual((caught.exception.status, caught.exception.code), (404, "not_found"))
        with self.assertRaisesRegex(sandbar.InvalidRequest, "timeout"):
            Sandbox.create(runtime="node24", timeout_ms=-1)
        with self.assertRaises(sandbar.NotAllowed):
            Sandbox.get("x", client=Client(token="wrong"))
        with self.assertRaises(TypeError):
            Sandbox.create(networkPolicy="deny-all")
        with self.assertRaisesRegex(ValueError, "deny-all"):
            Sandbox.create(network="deny")

    def test_a_program_that_is_not_there(self):
        with Sandbox.create(runtime="node24", network=False, persistent=False) as box:
            with self.assertRaises(sandbar.InvalidRequest) as caught:
                box.run(["no-such-program"])
            self.assertEqual(caught.exception.code, "executable_not_found")
            with self.assertRaises(sandbar.Stopped):
                box.stop()
                box.run("true")

    def test_nobody_there(self):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))  # bound and not listening: refused
            with self.assertRaisesRegex(sandbar.ConnectionFailed, "sandbar up"):
                Sandbox.get("x", client=Client(url=f"http://127.0.0.1:{probe.getsockname()[1]}"))
        with self.assertRaisesRegex(sandbar.SandbarError, "no http"):
            Client(url="ftp://x")


class Cut(unittest.TestCase):
    """A server that goes away in the middle of an answer."""

    def answer(self, body, chunked):
        listener = socket.create_server(("127.0.0.1", 0))

        def serve():
            peer, _ = listener.accept()
            with peer:
                while not peer.recv(65536).endswith(b"}"):
                    pass
                peer.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-ndjson\r\ntransfer-encoding: chunked\r\n\r\n")
                peer.sendall(b"%x\r\n%s\r\n" % (len(body), body) + (b"0\r\n\r\n" if chunked else b""))
            listener.close()

        thread = threading.Thread(target=serve)
        thread.start()
        self.addCleanup(thread.join)
        fields = {"sandbox": {"name": "x"}, "session": {"id": "sbx_1"}, "routes": []}
        return Sandbox(Client(url=f"http://127.0.0.1:{listener.getsockname()[1]}"), fields)

    def test_command(self):
        head = json.dumps({"command": {"id": "cmd_1", "exitCode": None}}) + "\n"
        for whole in (True, False):
            with self.assertRaises(sandbar.StreamCut):
                self.answer(head.encode(), whole).run("true")

    def test_error_line(self):
        lines = json.dumps({"command": {"id": "c", "exitCode": None}}) + "\n" + json.dumps(
            {"stream": "error", "data": {"code": "sandbox_stopped", "message": "it went"}}) + "\n"
        with self.assertRaisesRegex(sandbar.StreamCut, "it went"):
            self.answer(lines.encode(), True).run("true")

    def test_cell(self):
        for body in (b'{"type":"started","context":"c","executionCount":1}\n', b'{"type":"star'):
            with self.assertRaises(sandbar.StreamCut):
                self.answer(body, False).run_code("1")


class Code(WithBox):
    def test_variables_live_on(self):
        a, b = number(), number()
        first = self.box.run_code(f"x = {a}\nprint('set')")
        self.assertEqual((first.status, first.stdout, first.text), ("ok", "set\n", None))
        second = self.box.run_code(f"x + {b}")
        self.assertEqual((second.text, second.ok), (str(a + b), True))
        self.assertEqual(second.execution_count, first.execution_count + 1)
        self.assertEqual(second.context, first.context)

    def test_errors_are_results(self):
        cell = self.box.run_code("def f():\n    return [][0]\nf()")
        self.assertEqual((cell.status, cell.error["name"]), ("error", "IndexError"))
        self.assertIn("list index out of range", cell.error["traceback"])
        self.assertFalse(cell.ok)

    def test_languages_and_contexts(self):
        a = number()
        self.assertEqual(self.box.run_code(f"echo $(({a} + 1))", language="bash").stdout, f"{a + 1}\n")
        own = self.box.create_context("python")
        self.box.run_code(f"y = {a}", context=own["id"])
        self.assertEqual(self.box.run_code("y", context=own["id"]).text, str(a))
        self.assertEqual(self.box.run_code("y").error["name"], "NameError")
        self.assertIn(own["id"], [c["id"] for c in self.box.contexts()])
        self.box.restart(own["id"])
        self.assertEqual(self.box.run_code("y", context=own["id"]).error["name"], "NameError")
        self.box.delete_context(own["id"])
        with self.assertRaises(sandbar.NotFound):
            self.box.run_code("1", context=own["id"])

    def test_events_come_while_it_runs_and_interrupt_keeps_the_context(self):
        a = number()
        self.box.run_code(f"z = {a}")
        seen = []

        def on_event(event):
            seen.append(event["type"])
            if event["type"] == "stdout" and "round" in event["text"]:
                self.box.interrupt("python")

        cell = self.box.run_code("import time\nprint('round', flush=True)\nwhile True: time.sleep(0.05)", on_event=on_event)
        self.assertEqual((cell.status, cell.error["name"]), ("error", "KeyboardInterrupt"))
        self.assertEqual((seen[0], seen[-1]), ("started", "end"))
        self.assertEqual(self.box.run_code("z").text, str(a))

    def test_files_that_a_cell_makes(self):
        text = str(number())
        cell = self.box.run_code(f"open('made.txt', 'w').write('{text}')")
        made = [f for f in cell.artifacts if f["path"].endswith("made.txt")]
        self.assertEqual([f["size"] for f in made], [len(text)])
        self.assertEqual(self.box.read_text("made.txt"), text)

    def test_a_stopped_sandbox_goes_on(self):
        box = Sandbox.create(runtime="python3.13", network=False)
        text = str(number())
        box.write("kept.txt", text)
        box.stop()
        self.assertEqual(box.run_code("open('kept.txt').read()").text, repr(text))
        box.delete()
