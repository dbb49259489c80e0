# Runs a program in a pseudo-terminal for a test: our stdin is typed, what the terminal shows comes on our stdout.
# Lines "COLS ROWS" on descriptor 3 change the terminal's size. The exit code is the program's; before it ends, the last
# line on stderr says whether the terminal's settings are as they were ("restored" or "changed").
#
#   python3 pseudo_terminal.py COLS ROWS PROGRAM ARG…
import fcntl, os, pty, select, signal, struct, sys, termios

def resize(fd, cols, rows):
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

keyboard, screen = pty.openpty()
resize(screen, int(sys.argv[1]), int(sys.argv[2]))
before = termios.tcgetattr(screen)
child = os.fork()
if child == 0:
    os.setsid()
    fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(screen, fd)
    os.closerange(3, 100)
    os.execvp(sys.argv[3], sys.argv[3:])
signal.signal(signal.SIGTERM, lambda *_: os.kill(child, signal.SIGTERM))
sources = [0, 3, keyboard]
status = None
while True:
    ready, _, _ = select.select(sources, [], [], 0.1)
    for fd in ready:
        try:
            data = os.read(fd, 65536)
        except OSError:
            data = b""
        if not data:
            sources.remove(fd)
        elif fd == 0:
            os.write(keyboard, data)
        elif fd == 3:
            cols, rows = data.decode().split()[-2:]
            resize(screen, int(cols), int(rows))
        else:
            os.write(1, data)
    if status is None:
        pid, value = os.waitpid(child, os.WNOHANG)
        if pid == child:
            status = value
    elif keyboard not in ready:
        break
sys.stderr.write("restored\n" if termios.tcgetattr(screen) == before else "changed\n")
sys.exit(os.waitstatus_to_exitcode(status) & 255)
