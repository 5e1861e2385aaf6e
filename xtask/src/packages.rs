//! Checks and installs the system packages that Casement needs.
//!
//! If all are present, nothing is downloaded or changed. On Debian 12 and later it installs missing packages; elsewhere
//! it prints them, because package names differ.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::step;

/// A program or library that the machine must have.
pub(crate) struct Need {
    what: &'static str,
    package: &'static str,
    check: Check,
}

enum Check {
    Program(&'static str),
    AnyPath(&'static [&'static str]),
    /// `<folder>/<any name>/<rest>` exists.
    Below(&'static str, &'static str),
    Succeeds(&'static [&'static str]),
    /// The version output of the program contains this major version or a later one.
    Since(&'static [&'static str], u32),
    /// fontconfig knows a font for each of these languages.
    FontsFor(&'static [&'static str]),
    Any(&'static [Check]),
}

const PYTHON: Need =
    need("Python with venv", "python3-venv", Check::Succeeds(&["python3", "-c", "import venv, ensurepip"]));

/// The oldest supported version; in 148 a click of a stealth session was lost. `casement doctor` requires it too.
const MIN_CHROMIUM: u32 = 156;

/// The packages for `casement serve`.
pub(crate) const RUN: &[Need] = &[
    need("bubblewrap, the sandbox", "bubblewrap", Check::Program("bwrap")),
    need("Chromium 156 or later", "chromium", Check::Since(&["/usr/lib/chromium/chromium", "--version"], MIN_CHROMIUM)),
    need("chromedriver 156 or later", "chromium-driver", Check::Since(&["chromedriver", "--version"], MIN_CHROMIUM)),
    need("Xvfb, the display of headful sessions", "xvfb", Check::Program("Xvfb")),
    need("ffmpeg, which makes recordings", "ffmpeg", Check::Program("ffmpeg")),
    need(
        "PostgreSQL",
        "postgresql",
        Check::Any(&[Check::Below("/usr/lib/postgresql", "bin/postgres"), Check::Program("postgres")]),
    ),
    need("npm, which installs the script runner", "npm", Check::Program("npm")),
    need("setpriv, which drops root's rights", "util-linux", Check::Program("setpriv")),
    need("prlimit", "util-linux", Check::Program("prlimit")),
    need(
        "fonts for web pages",
        "fonts-liberation",
        Check::AnyPath(&["/usr/share/fonts/truetype/liberation", "/usr/share/fonts/truetype/liberation2"]),
    ),
    need("fc-list, which tells the fonts", "fontconfig", Check::Program("fc-list")),
];

/// The fonts without which pages show boxes in place of letters and emoji. Another font for the same languages does too.
pub(crate) const FONTS: &[Need] = &[
    need("fonts for Arabic, Hindi, Thai and other languages", "fonts-noto-core", Check::FontsFor(&["ar", "hi", "th"])),
    need("fonts for Chinese, Japanese and Korean", "fonts-noto-cjk", Check::FontsFor(&["zh-cn", "ja", "ko"])),
    need("a font for emoji", "fonts-noto-color-emoji", Check::FontsFor(&["und-zsye"])),
];

/// The additional packages for several servers on one machine: `cargo xtask cluster` and the tests.
pub(crate) const CLUSTER: &[Need] = &[
    PYTHON,
    need("ip, which connects the servers' networks", "iproute2", Check::Program("ip")),
    need("nsenter", "util-linux", Check::Program("nsenter")),
    need("unshare", "util-linux", Check::Program("unshare")),
];

/// The packages for `cargo xtask dist`.
pub(crate) const DIST: &[Need] = &[
    need("npm, which installs the script runner", "npm", Check::Program("npm")),
    need("dpkg-shlibdeps, which finds the libraries of a package", "dpkg-dev", Check::Program("dpkg-shlibdeps")),
];

/// The packages for `cargo xtask chart`.
pub(crate) const CHART: &[Need] = &[PYTHON];

/// The additional packages for the tests. The public clients are installed with pip and npm.
pub(crate) const TEST: &[Need] = &[
    need("curl, which the documentation uses", "curl", Check::Program("curl")),
    need("openssl, which makes certificates", "openssl", Check::Program("openssl")),
    // The package `tinyproxy` would start a server.
    need("tinyproxy, an HTTP proxy", "tinyproxy-bin", Check::Program("tinyproxy")),
    need("keepassxc-cli, which makes KeePass databases", "keepassxc", Check::Program("keepassxc-cli")),
    need("jq, with which the guides read JSON", "jq", Check::Program("jq")),
    need(
        "Java 17 or later, which runs a Selenium Grid",
        "default-jre-headless",
        Check::Since(&["java", "--version"], 17),
    ),
    need("dante, a SOCKS proxy", "dante-server", Check::AnyPath(&["/usr/sbin/danted"])),
    need(
        "libfaketime, which sets the clock that a program sees",
        "faketime",
        Check::Below("/usr/lib", "faketime/libfaketimeMT.so.1"),
    ),
];

const fn need(what: &'static str, package: &'static str, check: Check) -> Need {
    Need { what, package, check }
}

/// Installs the missing packages, or fails with a list for manual installation.
pub(crate) fn ensure(needs: &[&'static [Need]]) -> Result<()> {
    let missing = missing(needs);
    if missing.is_empty() {
        eprintln!("==> packages of the system: none is missing");
        return Ok(());
    }
    let list: Vec<String> = missing.iter().map(|need| format!("{} (Debian: {})", need.what, need.package)).collect();
    eprintln!("==> missing: {}", list.join(", "));
    if !is_debian(&fs::read_to_string("/etc/os-release").unwrap_or_default()) {
        bail!("this is not Debian 12 or later: install these by hand, then try again:\n  {}", list.join("\n  "));
    }
    let mut packages: Vec<&str> = missing.iter().map(|need| need.package).collect();
    packages.sort_unstable();
    packages.dedup();
    install(&packages).with_context(|| format!("by hand, as root: apt-get install {}", packages.join(" ")))?;
    let still = self::missing(needs);
    if let Some(need) = still.first() {
        bail!("{} is still missing after its package {} was installed", need.what, need.package);
    }
    Ok(())
}

fn missing(needs: &[&'static [Need]]) -> Vec<&'static Need> {
    needs.iter().flat_map(|group| group.iter()).filter(|need| !need.check.holds()).collect()
}

impl Check {
    fn holds(&self) -> bool {
        match self {
            Self::Program(name) => on_path(name),
            Self::AnyPath(paths) => paths.iter().any(|path| Path::new(path).exists()),
            Self::Below(folder, rest) => fs::read_dir(folder)
                .is_ok_and(|entries| entries.flatten().any(|entry| entry.path().join(rest).exists())),
            Self::Since(words, oldest) => {
                let output = Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).output();
                output.is_ok_and(|output| {
                    major_version(&String::from_utf8_lossy(&output.stdout)).is_some_and(|it| it >= *oldest)
                })
            }
            Self::FontsFor(languages) => languages.iter().all(|language| {
                let listed = Command::new("fc-list").arg(format!(":lang={language}")).stderr(Stdio::null()).output();
                listed.is_ok_and(|listed| !listed.stdout.is_empty())
            }),
            Self::Any(checks) => checks.iter().any(Self::holds),
            Self::Succeeds(words) => step::succeeds(Command::new(words[0]).args(&words[1..])),
        }
    }
}

/// Returns the first number in a program's version output.
fn major_version(output: &str) -> Option<u32> {
    output.split(|letter: char| !letter.is_ascii_digit()).find(|part| !part.is_empty())?.parse().ok()
}

fn on_path(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(name).is_file())
}

/// Returns true on Debian 12 or later; testing and unstable have no version.
fn is_debian(os_release: &str) -> bool {
    let field =
        |name: &str| os_release.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_matches('"'));
    let version = field("VERSION_ID=").and_then(|version| version.parse::<u32>().ok());
    field("ID=") == Some("debian") && version.is_none_or(|version| version >= 12)
}

fn install(packages: &[&str]) -> Result<()> {
    let quiet_cluster = packages.contains(&"postgresql") && !Path::new("/usr/share/postgresql-common").exists();
    if quiet_cluster {
        step::run("keeping Debian from starting a PostgreSQL of its own", &mut no_main_cluster()?)?;
    }
    let installed = apt_install(packages);
    if quiet_cluster {
        step::run("restoring Debian's cluster settings", as_root("rm")?.args(["-f", NO_MAIN_CLUSTER]))?;
    }
    installed
}

/// Reads the package lists, because old ones name files that the mirror no longer has, or an outdated browser.
pub(crate) fn refresh_lists() -> Result<()> {
    match apt_update() {
        Err(error) if apt_lists_are_there() => {
            eprintln!("==> going on with the package lists that are there: {error:#}");
            Ok(())
        }
        other => other,
    }
}

fn apt_install(packages: &[&str]) -> Result<()> {
    refresh_lists()?;
    let mut apt = apt_get()?;
    apt.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    step::run_long("installing packages", "a few minutes if all are missing: about 480 MB", &mut apt)
}

fn apt_update() -> Result<()> {
    step::run("reading the package lists", apt_get()?.arg("update"))
}

fn apt_lists_are_there() -> bool {
    let Ok(entries) = fs::read_dir("/var/lib/apt/lists") else { return false };
    entries.flatten().any(|entry| entry.file_name().to_string_lossy().contains("_Packages"))
}

/// A file that Debian's scripts read when a server package is installed for the first time. It is removed after the
/// installation.
const NO_MAIN_CLUSTER: &str = "/etc/postgresql-common/createcluster.d/casement.conf";

/// Returns the command that prevents Debian from starting a cluster on port 5432 with the package. Casement runs its
/// own cluster on a private socket, so that server would be unused.
fn no_main_cluster() -> Result<Command> {
    let script = r#"mkdir -p "$(dirname "$1")" && echo "create_main_cluster = false" > "$1""#;
    let mut shell = as_root("sh")?;
    shell.args(["-c", script, "sh", NO_MAIN_CLUSTER]);
    Ok(shell)
}

fn apt_get() -> Result<Command> {
    let mut apt = as_root("env")?;
    apt.args(["DEBIAN_FRONTEND=noninteractive", "apt-get", "-q"]);
    Ok(apt)
}

/// Returns the program with root's rights: directly as root, else through sudo.
fn as_root(program: &str) -> Result<Command> {
    let owner = fs::metadata("/proc/self").context("cannot tell who runs this: /proc is not mounted")?.uid();
    if owner == 0 {
        return Ok(Command::new(program));
    }
    if !on_path("sudo") {
        bail!("installing needs root, and there is no sudo here");
    }
    let mut sudo = Command::new("sudo");
    sudo.arg(program);
    Ok(sudo)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debian_12_and_later_are_recognized() {
        let release = |text: &str| is_debian(text);
        assert!(release("ID=debian\nVERSION_ID=\"12\"\n"));
        assert!(release("PRETTY_NAME=\"Debian GNU/Linux trixie/sid\"\nID=debian\n"));
        assert!(!release("ID=debian\nVERSION_ID=\"11\"\n"));
        assert!(!release("ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n"));
        assert!(!release(""));
    }

    #[test]
    fn the_major_version_is_the_first_number_of_the_output() {
        assert_eq!(major_version("Chromium 156.0.8078.79 built on Debian GNU/Linux 12 (bookworm)\n"), Some(156));
        assert_eq!(major_version("ChromeDriver 148.0.7778.167 (3b2)"), Some(148));
        assert_eq!(major_version("it did not start"), None);
    }

    #[test]
    fn the_debian_package_depends_on_what_the_program_needs() {
        let manifest = fs::read_to_string(crate::workspace::root().join("crates/app/Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("cargo has read it too");
        let list = |name: &str| -> Vec<&str> {
            let packages = manifest["package"]["metadata"]["deb"][name].as_array().expect("a list");
            packages.iter().filter_map(toml::Value::as_str).collect()
        };
        let depends = list("depends");
        // The package contains an installed script runner, and util-linux is essential in Debian.
        for need in RUN.iter().filter(|need| !["npm", "util-linux"].contains(&need.package)) {
            let named = match need.check {
                Check::Since(_, oldest) => format!("{} (>= {oldest})", need.package),
                _ => need.package.to_owned(),
            };
            let found = depends.iter().any(|depend| depend.split(" | ").any(|choice| choice == named));
            assert!(found, "crates/app/Cargo.toml: add {named} to the package's `depends`");
        }
        let image =
            fs::read_to_string(crate::workspace::root().join("deploy/container/Containerfile")).expect("a file");
        for Need { package, .. } in FONTS {
            assert!(list("recommends").contains(package), "crates/app/Cargo.toml: add {package} to `recommends`");
            assert!(image.contains(package), "deploy/container/Containerfile: install {package}, which is recommended");
        }
    }

    #[test]
    fn installed_packages_are_not_missing() {
        const MET: &[Need] = &[need("a shell", "dash", Check::Program("sh"))];
        const UNMET: &[Need] = &[need("a dream", "dream", Check::AnyPath(&["/no/such/path"]))];
        let names: Vec<&str> = missing(&[MET, UNMET]).iter().map(|need| need.what).collect();
        assert_eq!(names, ["a dream"]);
    }
}
