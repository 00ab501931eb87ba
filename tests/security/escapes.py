"""Ways out of the sandbox, as a program tries them: each is a piece of Python that raises if it was refused.

`W` is the workspace, `R` the run's own folder, `OUT` a folder beside the workspace that holds `secret`, `HOME` the
person's home with `.ssh/id`, `DAEMON` the process id of agentfs, `TCP`, `UDP` ports on loopback, `UNIX` a socket in
OUT, `ABSTRACT` one without a file. Whatever an attempt returns is written down as having got in.
"""

PRELUDE = """
import ctypes, errno, fcntl, glob, json, mmap, os, resource, shutil, signal, socket, struct, subprocess, sys
from pathlib import Path

libc = ctypes.CDLL(None, use_errno=True)
KEY = "-".join(("planted", "7f3a9c"))  # in two pieces, or it would find itself
ME = ("-c", "user.name=a", "-c", "user.email=a@b")

def put(path, text="evil"):
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)
    return Path(path).read_text()

def ok(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, timeout=20, **more).stdout

def syscall(*words):
    if libc.syscall(*words) < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True

def call(name, *words):
    if getattr(libc, name)(*words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return True

def iovec():
    buffer = ctypes.create_string_buffer(8)
    return ctypes.byref((ctypes.c_size_t * 2)(ctypes.addressof(buffer), 8))

def found(value):
    if not value:
        raise LookupError("nothing there")
    return value

def moved(one, other):
    os.rename(one, other)
    os.rename(other, one)
    return True
"""

WRITES = {
    "write beside the workspace": "put(f'{OUT}/x')",
    "overwrite a file outside": "put(f'{OUT}/secret')",
    "write into home": "put(f'{HOME}/.bashrc')",
    "write an ssh key": "put(f'{HOME}/.ssh/authorized_keys')",
    "write into /tmp": "put('/tmp/agentfs-escape')",
    "write into /var/tmp": "put('/var/tmp/agentfs-escape')",
    "write into /etc": "put('/etc/agentfs-escape')",
    "write into /usr/local/bin": "put('/usr/local/bin/agentfs-escape')",
    "write into /run": "put('/run/agentfs-escape')",
    "write the interpreter's packages": "put(f'{sys.prefix}/agentfs-escape.pth')",
    "replace the interpreter": "open(os.path.realpath(sys.executable), 'r+b')",
    "write through a link": "os.symlink(f'{OUT}', 'way-out') or put('way-out/x')",
    "write through a link of /proc": "put(f'/proc/self/root{OUT}/x')",
    "write through the folder of another process": "put(f'/proc/{os.getppid()}/cwd/../../x-outside')",
    "link a file in": "os.link(f'{OUT}/secret', 'linked') or put('linked')",
    "climb up": "put('../' * 40 + OUT.lstrip('/') + '/x')",
    "set the kernel's core pattern": "put('/proc/sys/kernel/core_pattern', '|/bin/true')",
    "set the kernel's hotplug program": "put('/sys/kernel/uevent_helper', '/bin/true')",
    "press the magic key": "put('/proc/sysrq-trigger', '')",
    "raise its own importance": "put('/proc/self/oom_score_adj', '-1000')",
}
READS = {
    "read beside the workspace": "open(f'{OUT}/secret').read()",
    "read home": "open(f'{HOME}/.ssh/id').read()",
    "list home": "found(os.listdir(HOME))",
    "read /root": "found(set(os.listdir('/root')) - {'.pyenv', '.local'})",
    "read password hashes": "found(open('/etc/shadow').read())",
    "read the daemon's environment": "open(f'/proc/{DAEMON}/environ').read()",
    "read the daemon's memory": "open(f'/proc/{DAEMON}/mem', 'rb')",
    "read the daemon's open files": "found(os.listdir(f'/proc/{DAEMON}/fd'))",
    "find a key in any environment": (
        "found([e for p in glob.glob('/proc/*/environ') for e in [open(p, 'rb').read()] if KEY.encode() in e])"
    ),
    "find a key in its own environment": "found([v for v in os.environ.values() if KEY in v])",
    "find a key in any command line": (
        "found([e for p in glob.glob('/proc/*/cmdline') for e in [open(p, 'rb').read()] if KEY.encode() in e])"
    ),
    "inherit an open file": (
        "found([p for n in range(3, 256) for p in [os.path.realpath(f'/proc/self/fd/{n}')] if p.startswith(W)])"
    ),
    "see the daemon": "found([p for p in glob.glob('/proc/*/cmdline') if 'agentfs\\0watch' in open(p).read()])",
    "read another run": "found([open(p).read() for p in glob.glob(f'{W}/runs/*/other/goal.md')])",
    "read the ledger": "found(os.listdir(f'{W}/runs/.git'))",
    "read keys beside the settings": "open(f'{W}/.env').read()",
    "use the kernel's keys": "syscall(250, 0, -3, 0)",
    "read a block device": "found([open(p, 'rb').read(1) for p in glob.glob('/dev/[svn][dv]*')])",
    "read kernel memory": "open('/dev/mem', 'rb').read(1)",
    "read the kernel's log": "open('/dev/kmsg', 'rb').read(1)",
    "read kernel symbols": "found([l for l in open('/proc/kallsyms') if not l.startswith('0000000000000000')][:1])",
}
KERNEL = {
    "trace the daemon": "call('ptrace', 16, DAEMON, None, None)",
    "kill the daemon": "os.kill(DAEMON, 9)",
    "kill by signal to everyone": "found([p for p in range(2, 70000) if p != os.getpid() and _alive(p)])",
    "read memory across processes": "syscall(310, DAEMON, iovec(), 1, iovec(), 1, 0)",
    "mount a tmpfs": "call('mount', b'x', b'/mnt', b'tmpfs', 0, None)",
    "mount by program": "ok('mount', '-t', 'tmpfs', 'x', '/opt')",
    "remount writable": "call('mount', None, b'/', None, 32, None)",
    "remount /usr writable": "call('mount', None, b'/usr', None, 32 | 4096, None)",
    "bind home over": "call('mount', b'/usr', b'/tmp', None, 4096, None)",
    "unmount": "call('umount2', b'/proc', 2)",
    "unmount a fence": "call('umount2', f'{W}/goals'.encode(), 2)",
    "pivot the root": "syscall(155, b'.', b'.')",
    "change the root": "os.chroot('/proc/1/root')",
    "new user namespace, then mount": "ok('unshare', '-rm', 'sh', '-c', 'mount -o remount,rw /usr && touch /usr/x')",
    "new user namespace, then lift a fence": (
        "ok('unshare', '-rm', 'sh', '-c', f'umount -l {W}/goals {W}/runs && touch {W}/goals/lifted.md')"
    ),
    "join the daemon's namespaces": "ok('nsenter', '-t', str(DAEMON), '-m', 'touch', f'{OUT}/x')",
    "join the namespaces of its own init": "ok('nsenter', '-t', '1', '-m', '-n', 'touch', f'{OUT}/x')",
    "make a device": "os.mknod('disk', 0o60600, os.makedev(254, 0)) or open('disk', 'rb').read(1)",
    "make a device of memory": "os.mknod('mem', 0o20600, os.makedev(1, 1)) or open('mem', 'rb').read(1)",
    "load a module": "syscall(175, None, 0, b'')",
    "set the clock": "call('settimeofday', struct.pack('qq', 1, 0), None)",
    "set the machine's name": "call('sethostname', b'x', 1)",
    "reboot": "syscall(169, 0xfee1dead, 672274793, 0x89abcdef, None)",
    "become another user": "os.setuid(12345) or True",
    "gain rights from a file": "found('NoNewPrivs:\\t0' in open('/proc/self/status').read())",
    "hold capabilities": "found([l for l in open('/proc/self/status') if l[:4] == 'CapE' and int(l.split()[1], 16)])",
    "type into the terminal": "fcntl.ioctl(os.open('/dev/tty', os.O_RDWR), 0x5412, b'x')",
}
NETWORK = {
    "tcp": "socket.create_connection(('127.0.0.1', TCP), 3).send(b'x')",
    "tcp by IPv6": "socket.create_connection(('::1', TCP), 3).send(b'x')",
    "tcp by the machine's name": "socket.create_connection((socket.gethostname(), TCP), 3).send(b'x')",
    "unix socket": "socket.socket(socket.AF_UNIX).connect(UNIX)",
    "unix socket without a file": "socket.socket(socket.AF_UNIX).connect('\\0' + ABSTRACT)",
    "raw packets": "socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 3)",
    "raw ip": "socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).sendto(b'x', ('127.0.0.1', 0)) and found('')",
    "vsock to the machine's host": "socket.socket(40, socket.SOCK_STREAM).connect((2, 1024))",
    "the interface's settings": "fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh', b'eth0', 1))",
    "any interface but loopback": "found({name for _, name in socket.if_nameindex()} - {'lo'})",
}
UDP = "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', UDP))"  # nobody says no to it
FORGERIES = {
    "settings": "put(f'{W}/agentfs.toml', 'mode = 1')",
    "move the settings": "moved(f'{W}/agentfs.toml', f'{W}/aside.toml')",
    "a goal": "put(f'{W}/goals/evil.md')",
    "a rejected goal": "put(f'{W}/goals/rejected/evil.md')",
    "a tool": "put(f'{W}/tools/evil.py')",
    "a prompt": "put(f'{W}/prompts/planner.md')",
    "a schema": "put(f'{W}/schemas/plan.schema.json')",
    "the folder of goals": "moved(f'{W}/goals', f'{W}/goals2')",
    "the folder of runs": "moved(f'{W}/runs', f'{W}/runs2')",
    "goals by a link": "os.rmdir(f'{W}/goals') or os.symlink('files', f'{W}/goals')",
    "an order": "put(f'{R}/steps/extra.1.json')",
    "a result": "put(f'{R}/steps/last.1.result.json')",
    "a log": "put(f'{R}/steps/last.1.log.jsonl')",
    "an output": "put(f'{R}/steps/last.1.output.txt')",
    "its own result": "put(f'{R}/steps/simple.1.result.json')",
    "a reply": "put(f'{R}/steps/last.1.reply.md', 'approve')",
    "a question": "put(f'{R}/steps/last.1.question.md')",
    "permission to try again": "put(f'{R}/steps/last.1.again.md')",
    "a planner's call": "put(f'{R}/planning/9.json')",
    "a planner's answer": "put(f'{R}/planning/9.result.json')",
    "a yes to an answer": "put(f'{R}/planning/1.reply.md', 'approve')",
    "a revision": "put(f'{R}/revisions/9.json')",
    "the plan": "put(f'{R}/plan.json')",
    "exchange the plan": "moved(f'{R}/plan.json', f'{R}/plan.old')",
    "the goal of the run": "put(f'{R}/goal.md')",
    "a wish to replan": "put(f'{R}/replan.md')",
    "the run's settings": "put(f'{R}/run.json')",
    "the outcome": "put(f'{R}/outcome.json')",
    "the page for people": "put(f'{R}/STATUS.md')",
    "the run's folder": "moved(R, R + '-2')",
    "another run": "put(f'{R}-2/plan.json')",
    "the ledger's branch": "put(f'{W}/runs/.git/refs/heads/main')",
    "the ledger's settings": "put(f'{W}/runs/.git/config')",
    "a hook of the ledger": "put(f'{W}/runs/.git/hooks/post-commit')",
    "the ledger's index": "put(f'{W}/runs/.git/index')",
    "a lock of the ledger": "put(f'{W}/runs/.git/index.lock')",
    "commit to the ledger": "ok('git', '-C', f'{W}/runs', *ME, 'commit', '--allow-empty', '-m', 'evil')",
    "see the locks of agentfs": "found(str(os.listdir(f'{W}/runs/.git/agentfs-own/locks')))",
    "read what agentfs trusts by": "found(str(os.listdir(f'{W}/runs/.git/agentfs-own')))",
    "the hooks of the person's repository": "put(f'{W}/.git/hooks/pre-commit')",
    "the settings of the person's repository": "put(f'{W}/.git/config')",
    "the person's repository elsewhere": "moved(f'{W}/.git', f'{W}/.git2')",
    "a submodule's settings": "put(f'{W}/.git/modules/sub/config')",
    "the settings of a linked worktree": "put(f'{W}/.git/worktrees/side/commondir', '../../evil')",
    "the hooks that settings name": "put(f'{W}/.husky/pre-commit')",
    "the settings that settings include": "put(f'{W}/shared.gitconfig')",
}
EXTRA = """
def _alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not Path(f'/proc/{pid}/status').exists()  # one that is not even of this namespace
"""


def script(attempts: dict[str, str], names: dict[str, object]) -> str:
    """Return one program that makes all the attempts and prints, as JSON, which of them got in."""
    given = "\n".join(f"{name} = {value!r}" for name, value in names.items())
    return f"""{PRELUDE}{EXTRA}
{given}
verdicts = {{}}
for name, source in {attempts!r}.items():
    try:
        verdicts[name] = f"GOT IN: {{eval(source)!r}}"[:200]
    except BaseException as error:
        verdicts[name] = f"{{type(error).__name__}}: {{error}}"[:200]
print(json.dumps(verdicts))
"""
