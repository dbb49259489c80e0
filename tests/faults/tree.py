# A file tree that has everything a file system can hold, changed a little by each call, and its fingerprint.
#
#   tree.py N     prints the fingerprint, makes change N (0: the first tree), prints the fingerprint again
# PLAIN in the environment: the file system keeps neither attributes nor FIFOs.
import hashlib, json, os, random, shutil, sqlite3, stat, sys

PLAIN = os.environ.get("PLAIN")
ROOTS = ["/data", "/etc", "/vercel", "/root", "/opt", "/usr/share/perl5"]
# Made anew for every machine, below what the sandbox itself writes.
NOT_OURS = {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/etc/machine-id", "/etc/ssl"}


def paths():
    for root in ROOTS:
        if not os.path.lexists(root):
            continue
        yield root
        for top, dirs, files in os.walk(root):
            dirs[:] = sorted(d for d in dirs if os.path.join(top, d) not in NOT_OURS)
            for name in sorted(dirs + files):
                path = os.path.join(top, name)
                if path not in NOT_OURS:
                    yield path


def describe(path, links):
    s = os.lstat(path)
    row = [path, stat.filemode(s.st_mode), s.st_uid, s.st_gid, s.st_mtime_ns]
    if stat.S_ISLNK(s.st_mode):
        row.append(os.readlink(path))
    if stat.S_ISREG(s.st_mode):
        with open(path, "rb") as f:
            row.append(hashlib.sha256(f.read()).hexdigest())
        row.append("sparse" if s.st_blocks * 512 < s.st_size // 2 else "full")
        if s.st_nlink > 1:
            # All links of a file lie in one directory here.
            row.append(links.setdefault((os.path.dirname(path), s.st_ino), path))
    if not stat.S_ISLNK(s.st_mode) and not PLAIN:
        row.append({n: os.getxattr(path, n).hex() for n in sorted(os.listxattr(path)) if n.startswith("user.")})
    return row


def fingerprint():
    links = {}
    rows = [describe(p, links) for p in paths()]
    db = sqlite3.connect("file:/data/book.db?mode=ro&immutable=1", uri=True) if os.path.exists("/data/book.db") else None
    if db:
        rows.append(db.execute("PRAGMA integrity_check").fetchall() + db.execute("SELECT count(*), sum(n) FROM t").fetchall())
        db.close()
    if os.environ.get("DUMP"):
        for row in rows:
            print(json.dumps(row))
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def first():
    for i in range(20):
        write(f"/data/a{i % 4}/b/f{i}", os.urandom(i * 997))
    os.remove("/etc/debian_version")  # from the image: a whiteout
    shutil.rmtree("/etc/cron.d", ignore_errors=True)
    if os.path.isdir("/usr/share/perl5"):
        os.rename("/usr/share/perl5", "/data/perl5")  # a directory of the image
    db = sqlite3.connect("/data/book.db")
    db.execute("PRAGMA journal_mode=WAL")
    db.execute("CREATE TABLE t (n INTEGER)")
    db.commit()
    db.close()


def change(n):
    r = random.Random(n)
    here = f"/data/c{n}"
    write(f"{here}/plain", r.randbytes(r.randrange(20000)))
    os.chmod(f"{here}/plain", r.choice([0o600, 0o4755, 0o2644, 0o1777, 0o000]))
    os.chown(f"{here}/plain", r.randrange(60000), r.randrange(60000))
    os.utime(f"{here}/plain", ns=(r.randrange(2**40) * 10**6, r.randrange(2**40) * 10**6))
    note = r.randbytes(40)
    if not PLAIN:
        os.setxattr(here, "user.note", note)
        os.mkfifo(f"{here}/fifo")
    os.symlink(r.choice(["plain", "../nowhere", "/etc/passwd"]), f"{here}/link")
    os.link(f"{here}/plain", f"{here}/hard")
    with open(f"{here}/hole", "wb") as f:
        f.seek(r.randrange(1 << 20, 4 << 20))
        f.write(b"end")
    write("/data/again", r.randbytes(100))  # the same file in every layer
    with open("/data/grows", "ab") as f:
        f.write(b"line %d\n" % n)
    old = sorted(d for d in os.listdir("/data") if d.startswith("c") and d != f"c{n}")
    if len(old) > 6:  # what earlier layers made is renamed, emptied, replaced, deleted
        a, b, c, d = r.sample(old, 4)
        os.rename(f"/data/{a}", f"/data/renamed{n}")
        shutil.rmtree(f"/data/{b}")
        shutil.rmtree(f"/data/{c}")
        os.makedirs(f"/data/{c}/opaque")
        os.remove(f"/data/{d}/hole") if os.path.exists(f"/data/{d}/hole") else None
        if not PLAIN:
            os.setxattr(f"/data/{d}", "user.note", b"changed")
    for name in sorted(x for x in os.listdir("/data") if x.startswith("renamed"))[:-3]:
        shutil.rmtree(f"/data/{name}")
    db = sqlite3.connect("/data/book.db")
    db.executemany("INSERT INTO t VALUES (?)", [(n * 1000 + i,) for i in range(50)])
    db.commit()
    db.close()


n = int(sys.argv[1])
print(fingerprint() if n > 0 else "none")
if n == 0:
    first()
change(n)
print(fingerprint())
