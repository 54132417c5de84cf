"""Several hosts on one machine, each with a separate network, processes, name and folders.

The hosts are Linux namespaces, connected by a switch in another namespace. They end with the processes that hold
them. This needs root, and the programs ip, unshare and nsenter.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path

PROGRAMS = ("ip", "unshare", "nsenter", "pkill")
_NETWORK = "10.77.0"
_HOLD = "echo ready; exec sleep infinity"
_SHARED_MEMORY = "256m"


def are_possible():
    """Return whether hosts can be made on this machine."""
    return os.geteuid() == 0 and all(map(shutil.which, PROGRAMS))


class _Namespaces:
    """Namespaces, kept by a process that sleeps in them."""

    def __init__(self, *kinds, setup=""):
        script = f"set -e\n{setup}\n{_HOLD}"
        command = ["unshare", *kinds, "--kill-child", "sh", "-c", script]
        self._holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._holder.stdout.readline() == "ready\n"
        children = Path(f"/proc/{self._holder.pid}/task/{self._holder.pid}/children").read_text().split()
        self.pid = int(children[0])

    def command(self, *command):
        return ["nsenter", "--target", str(self.pid), "--all", *command]

    def run(self, *command, check=True, **options):
        done = subprocess.run(self.command(*command), check=False, capture_output=True, text=True, **options)
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def end(self):
        """Kill all processes, as a power failure does."""
        if self._holder.poll() is None:
            self._holder.kill()
            self._holder.communicate()


class Host(_Namespaces):
    """A host of a network.

    Attributes:
        name: name of the host.
        address: IP address of the host.
        home: home folder of its user.
        environment: environment variables of its user.
    """

    def __init__(self, switch, number, folder, own_folders, variables):
        self.name, self.address = f"host-{number}", f"{_NETWORK}.{number}"
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "GEN_"))}
        own = {"HOME": str(self.home), "NO_COLOR": "1", "COLUMNS": "200", "RAY_AUTH_MODE": "token"}
        self.environment = {**kept, **own, **variables}
        mounts = [f"hostname {self.name}", f"mount -t tmpfs -o size={_SHARED_MEMORY} none /dev/shm"]
        for index, path in enumerate((Path("/tmp/ray"), *own_folders)):
            source = folder / str(index)
            source.mkdir()
            path.mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --bind '{source}' '{path}'")
        kinds = ("--net", "--mount", "--uts", "--pid", "--fork", "--mount-proc")
        super().__init__(*kinds, setup="\n".join(mounts))
        self._switch, self._port = switch, f"port{number}"
        ends = (self._port, "netns", str(switch.pid)), ("eth0", "netns", str(self.pid))
        subprocess.run(["ip", "link", "add", *ends[0], "type", "veth", "peer", "name", *ends[1]], check=True)
        switch.run("ip", "link", "set", self._port, "master", "bridge", "up")
        self.run("ip", "address", "add", f"{self.address}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            self.run("ip", "link", "set", device, "up")
        # Programs use the address of this route as the host's address.
        self.run("ip", "route", "add", "default", "dev", "eth0")

    def start(self, *command, **options):
        """Start a program as the host's user."""
        return subprocess.Popen(self.command(*command), env=self.environment, **options)

    def ray(self, *arguments):
        """Run the command ray."""
        program = Path(sys.executable).with_name("ray")
        return self.run(sys.executable, str(program), *arguments, env=self.environment)

    def copy(self, source, target):
        """Copy a file into a folder of the host."""
        self.run("cp", str(source), str(target))

    def kill(self, name):
        """Kill the processes with this name by SIGKILL. Return whether there was one."""
        return self.run("pkill", "-KILL", "-f", name, check=False).returncode == 0

    def unplug(self):
        """Disconnect the host from the network."""
        self._switch.run("ip", "link", "set", self._port, "down")

    def plug_in(self):
        """Connect the host to the network."""
        self._switch.run("ip", "link", "set", self._port, "up")


@contextmanager
def network(folder, count, own_folders=(), **variables):
    """Yield connected hosts, which end with the block.

    Args:
        folder: folder of the hosts' files.
        count: number of hosts.
        own_folders: paths at which each host has a separate folder.
        variables: additional environment variables of the users.
    """
    with ExitStack() as ends:
        switch = _Namespaces("--net", "--fork")
        ends.callback(switch.end)
        switch.run("ip", "link", "add", "bridge", "type", "bridge")
        switch.run("ip", "link", "set", "bridge", "up")
        hosts = []
        for number in range(1, count + 1):
            hosts.append(Host(switch, number, folder / f"host-{number}", own_folders, variables))
            ends.callback(hosts[-1].end)
        yield hosts
