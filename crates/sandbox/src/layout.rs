//! The file system and namespaces of a sandbox, as arguments of bubblewrap.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::spec::Spec;

/// The user and group id inside.
pub(crate) const INSIDE_ID: &str = "1000";
/// The home directory inside.
const HOME: &str = "/home/casement";
/// The path of the program inside.
pub(crate) const PROGRAM: &str = "/run/casement/program";
/// The path inside of the shell that ends all processes when the program ends.
pub(crate) const SUPERVISOR: &str = "/run/casement/supervisor";
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";
/// The size of `/run` and `/run/casement`, in bytes.
const RUN_BYTES: u64 = 16 << 20;

/// The part of `/etc` that programs need and that contains nothing of the host's users, services or secrets. A
/// directory in this list must not contain configuration that the host's administrator wrote for other programs.
const ETC: &[&str] = &[
    "/etc/alternatives",
    "/etc/ca-certificates.conf",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/os-release",
    "/etc/pki/tls/certs",
    "/etc/protocols",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/terminfo",
    "/etc/timezone",
];

/// Directories with configuration of the host's administrator, below directories that are mounted whole.
const MASKED: &[&str] = &["/usr/local/etc", "/usr/etc"];

const PASSWD: &str = "casement:x:1000:1000:casement:/home/casement:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "casement:x:1000:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost sandbox\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nhosts: files\n";

/// Returns the files that are created for each sandbox: the path inside and the content.
pub(crate) fn own_files(machine_id: &str) -> Vec<(&'static Path, Vec<u8>)> {
    [
        ("/etc/passwd", PASSWD),
        ("/etc/group", GROUP),
        ("/etc/hosts", HOSTS),
        ("/etc/nsswitch.conf", NSSWITCH),
        ("/etc/resolv.conf", ""),
        ("/etc/hostname", "sandbox\n"),
        ("/etc/machine-id", machine_id),
    ]
    .map(|(path, content)| (Path::new(path), content.as_bytes().to_vec()))
    .into()
}

/// A list of arguments.
#[derive(Default)]
pub(crate) struct Arguments(Vec<OsString>);

impl Arguments {
    fn add<const N: usize>(&mut self, words: [&dyn AsRef<OsStr>; N]) {
        self.0.extend(words.map(|word| word.as_ref().to_owned()));
    }

    fn tmpfs(&mut self, mode: &str, bytes: u64, at: &str) {
        self.add([&"--perms", &mode, &"--size", &bytes.to_string(), &"--tmpfs", &at]);
    }

    /// Returns the arguments for a command line.
    pub(crate) fn words(self) -> Vec<OsString> {
        self.0
    }

    /// Returns the arguments in the form that bubblewrap reads from a descriptor: a NUL after each.
    pub(crate) fn terminated(self) -> Vec<u8> {
        self.0.into_iter().flat_map(|word| [word.into_vec(), vec![0]]).flatten().collect()
    }
}

/// Returns the arguments for namespaces and dropped rights. Nested user namespaces stay allowed, because a browser's
/// own sandbox consists of them. `has_network` is true if bubblewrap is started in a prepared network.
pub(crate) fn isolation(has_network: bool) -> Arguments {
    let mut args = Arguments::default();
    args.add([&"--unshare-user", &"--uid", &INSIDE_ID, &"--gid", &INSIDE_ID]);
    args.add([&"--unshare-pid", &"--unshare-ipc", &"--unshare-uts", &"--unshare-cgroup-try"]);
    if !has_network {
        args.add([&"--unshare-net"]);
    }
    args.add([&"--hostname", &"sandbox", &"--new-session", &"--cap-drop", &"ALL", &"--clearenv"]);
    args.add([&"--ro-bind", &"/usr", &"/usr"]);
    for path in MASKED.iter().filter(|path| fs::symlink_metadata(path).is_ok_and(|about| about.is_dir())) {
        args.tmpfs("0755", 4096, path);
        args.add([&"--remount-ro", path]);
    }
    for name in ["bin", "lib", "lib32", "lib64", "libx32", "sbin"] {
        let path = Path::new("/").join(name);
        match fs::read_link(&path) {
            Ok(target) => args.add([&"--symlink", &target, &path]),
            Err(_) => args.add([&"--ro-bind-try", &path, &path]),
        }
    }
    args.add([&"--proc", &"/proc", &"--dev", &"/dev"]);
    args
}

/// Returns all arguments that bubblewrap reads from a descriptor. `data` contains the files, each with the descriptor
/// of its content.
pub(crate) fn arguments<'a>(spec: &Spec, data: impl Iterator<Item = (&'a Path, i32)>) -> Arguments {
    let mut args = isolation(spec.network.is_some());
    let environment = [("HOME", HOME), ("PATH", PATH), ("LANG", "C.UTF-8"), ("USER", "casement")];
    for (name, value) in environment {
        args.add([&"--setenv", &name, &value]);
    }
    for (name, value) in &spec.env {
        args.add([&"--setenv", name, value]);
    }
    for made in ["/etc", "/etc/ssl", "/home", "/var", "/var/cache"] {
        args.add([&"--perms", &"0755", &"--dir", &made]);
    }
    args.tmpfs("1777", spec.shared_memory_bytes(), "/dev/shm");
    args.tmpfs("1777", spec.tmpfs_bytes, "/tmp");
    args.tmpfs("0755", RUN_BYTES, "/run");
    args.tmpfs("0700", spec.tmpfs_bytes, HOME);
    args.add([&"--chdir", &HOME]);
    args.add([&"--symlink", &"/run", &"/var/run", &"--symlink", &"/tmp", &"/var/tmp"]);
    // Without this cache, every program that renders text scans all fonts.
    args.add([&"--ro-bind-try", &"/var/cache/fontconfig", &"/var/cache/fontconfig"]);
    for path in ETC {
        args.add([&"--ro-bind-try", path, path]);
    }
    for path in &spec.read_only {
        args.add([&"--ro-bind", path, path]);
    }
    // A separate mount, so that programs inside can neither rename nor replace its entries.
    args.tmpfs("0755", RUN_BYTES, "/run/casement");
    args.add([&"--ro-bind", &spec.egress_dir, &"/run/casement/egress"]);
    for (outside, inside) in &spec.read_only_at {
        args.add([&"--ro-bind", outside, inside]);
    }
    for (path, descriptor) in data {
        args.add([&"--perms", &"0444", &"--ro-bind-data", &descriptor.to_string(), &path]);
    }
    args
}

/// The arguments that make mounts read-only. They come after all other mounts, also that of the program.
pub(crate) const SEALED: [&str; 6] = ["--remount-ro", "/run/casement", "--remount-ro", "/dev", "--remount-ro", "/"];

/// Returns the bytes of a path on a command line.
pub(crate) fn bytes(path: &Path) -> &[u8] {
    path.as_os_str().as_bytes()
}
