//! `cargo xtask dist`: builds the files of a release in `target/dist`: a Debian package, a tarball, the list of the
//! program's dependencies, and the checksums of these files.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{packages, script_runner, step, tools, workspace};

const CARGO_DEB: &str = "3.8.0";
const CARGO_SBOM: &str = "0.10.0";

/// The version of the workspace, which is also that of this program.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Debian's name of this machine's architecture.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// The files of the tree that the program prints, with its arguments.
const PRINTED: &[(&[&str], &str)] = &[
    (&["completion", "bash"], "share/bash-completion/completions/casement"),
    (&["completion", "zsh"], "share/zsh/site-functions/_casement"),
    (&["completion", "fish"], "share/fish/vendor_completions.d/casement.fish"),
];
/// The files of the tree that are copies of files of the repository.
const COPIED: &[(&str, &str)] = &[
    ("deploy/apparmor/casement", "share/casement/apparmor"),
    ("deploy/prometheus/alerts.yaml", "share/casement/casement-alerts.yaml"),
    ("deploy/grafana/casement.json", "share/casement/grafana-dashboard.json"),
    ("CHANGELOG.md", "share/doc/casement/CHANGELOG.md"),
    ("LICENSE-APACHE", "share/doc/casement/LICENSE-APACHE"),
    ("LICENSE-MIT", "share/doc/casement/LICENSE-MIT"),
];
/// The folders of the tree with the documents, and those of the repository that they are copies of.
const DOCUMENTS: &[(&str, &str)] = &[("docs", "share/doc/casement"), ("docs/guides", "share/doc/casement/guides")];
/// The endings of files that are documents.
const DOCUMENT_ENDINGS: [&str; 2] = [".md", ".json"];
/// The folder of the manual pages.
const MANUALS: &str = "share/man/man1";

pub(crate) fn run() -> Result<()> {
    packages::ensure(&[packages::DIST])?;
    script_runner::ensure()?;
    let mut build = workspace::cargo();
    build.args(["build", "--locked", "--release", "--package", "casement"]);
    step::run_long("building the program", "about 12 minutes on 2 cores", &mut build)?;

    let target = workspace::target()?;
    // The Debian package's list of files names this folder.
    let tree = target.join("release/tree");
    let dist = target.join("dist");
    for folder in [&tree, &dist] {
        make_empty(folder)?;
    }
    assemble(&target, &tree)?;
    make_debian_package(&dist)?;
    make_tarball(&tree, &dist)?;
    list_dependencies(&dist)?;
    write_checksums(&dist)?;
    eprintln!("==> the files of the release are in {}", dist.display());
    Ok(())
}

fn make_empty(folder: &Path) -> Result<()> {
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

/// Creates the tree of the installed files, as it is below `/usr/local` after the tarball is unpacked there.
fn assemble(target: &Path, tree: &Path) -> Result<()> {
    let program = tree.join("bin/casement");
    copy(&target.join("release/casement"), &program)?;
    script_runner::install_into(&tree.join("lib/casement/runner"))?;
    for (arguments, file) in PRINTED {
        write(&tree.join(file), &printed(&program, arguments)?)?;
    }
    fs::create_dir_all(tree.join(MANUALS))?;
    let manuals = tree.join(MANUALS);
    printed(&program, &["man", "--all", manuals.to_str().context("the tree has no name in UTF-8")?])?;
    for (source, folder) in DOCUMENTS {
        for file in documents(source)? {
            copy(&workspace::root().join(source).join(&file), &tree.join(folder).join(&file))?;
        }
    }
    for (source, file) in COPIED {
        copy(&workspace::root().join(source), &tree.join(file))?;
    }
    let unit = read("deploy/systemd/casement.service")?.replace("/usr/bin/", "/usr/local/bin/");
    write(&tree.join("lib/systemd/system/casement.service"), unit.as_bytes())?;
    let configuration = commented(&read("docs/examples/casement.toml")?);
    write(&tree.join("etc/casement/casement.toml"), configuration.as_bytes())
}

/// Returns the names of the documents in a folder of the repository.
fn documents(folder: &str) -> Result<Vec<String>> {
    let entries = fs::read_dir(workspace::root().join(folder)).with_context(|| format!("cannot list {folder}"))?;
    let names =
        entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())).collect::<Result<Vec<_>>>()?;
    Ok(names.into_iter().filter(|name| DOCUMENT_ENDINGS.iter().any(|ending| name.ends_with(ending))).collect())
}

/// Returns the example of the configuration with every setting commented out, so that the defaults of later versions
/// apply.
fn commented(example: &str) -> String {
    let introduction = "# Casement's configuration: every setting with its default or an example. Remove the # of a line \
        to set it. Flags and\n# variables take precedence over this file. See casement-serve(1).\n";
    let settings = example.split_once("\n\n").map_or(example, |(_, settings)| settings);
    let comment = |line: &str| match line {
        "" => String::new(),
        line if line.starts_with('#') => line.to_owned(),
        line => format!("#{line}"),
    };
    let lines = settings.lines().map(|line| comment(line) + "\n");
    format!("{introduction}\n{}", lines.collect::<String>())
}

fn make_debian_package(dist: &Path) -> Result<()> {
    let mut deb = tools::command("cargo-deb", CARGO_DEB, &[])?;
    deb.args(["deb", "--locked", "--package", "casement", "--no-build", "--no-strip", "--output"]).arg(dist);
    step::run("making the Debian package", &mut deb)
}

fn make_tarball(tree: &Path, dist: &Path) -> Result<()> {
    let name = format!("casement-{VERSION}-{ARCHITECTURE}");
    let mut tar = Command::new("tar");
    tar.args(["--create", "--gzip", "--sort=name", "--owner=0", "--group=0", "--numeric-owner"]);
    tar.arg(format!("--transform=s,^\\.,{name},")).arg("--file").arg(dist.join(format!("{name}.tar.gz")));
    step::run("making the tarball", tar.arg("--directory").arg(tree).arg("."))
}

/// Writes the program's dependencies in the format CycloneDX.
fn list_dependencies(dist: &Path) -> Result<()> {
    let mut sbom = tools::command("cargo-sbom", CARGO_SBOM, &[])?;
    sbom.args(["sbom", "--cargo-package", "casement", "--output-format", "cyclone_dx_json_1_6"]);
    let list = dist.join(format!("casement-{VERSION}-{ARCHITECTURE}.cdx.json"));
    step::run("listing the dependencies", sbom.stdout(created(&list)?))
}

fn write_checksums(dist: &Path) -> Result<()> {
    let entries = fs::read_dir(dist).with_context(|| format!("cannot list {}", dist.display()))?;
    let mut names = entries.map(|entry| Ok(entry?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort_unstable();
    let mut sha256sum = Command::new("sha256sum");
    sha256sum.args(names).current_dir(dist).stdout(created(&dist.join("SHA256SUMS"))?);
    step::run("computing the checksums", &mut sha256sum)
}

/// Returns the output of the program.
fn printed(program: &Path, arguments: &[&str]) -> Result<Vec<u8>> {
    let output = Command::new(program).args(arguments).stderr(Stdio::inherit()).output();
    let output = output.with_context(|| format!("cannot start {}", program.display()))?;
    if !output.status.success() {
        bail!("`casement {}` ended with {}", arguments.join(" "), output.status);
    }
    Ok(output.stdout)
}

fn read(file: &str) -> Result<String> {
    fs::read_to_string(workspace::root().join(file)).with_context(|| format!("cannot read {file}"))
}

fn created(path: &Path) -> Result<File> {
    File::create(path).with_context(|| format!("cannot write {}", path.display()))
}

fn write(path: &Path, content: &[u8]) -> Result<()> {
    make_parent(path)?;
    fs::write(path, content).with_context(|| format!("cannot write {}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    make_parent(to)?;
    fs::copy(from, to).with_context(|| format!("cannot copy {} to {}", from.display(), to.display()))?;
    Ok(())
}

fn make_parent(path: &Path) -> Result<()> {
    let folder = path.parent().context("a file is in a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_installed_configuration_names_every_setting_and_sets_none() {
        let example = read("docs/examples/casement.toml").expect("there is an example");
        let installed = commented(&example);
        assert!(installed.lines().all(|line| line.is_empty() || line.starts_with('#')), "{installed}");
        let settings = |text: &str| text.lines().filter(|line| line.contains(" = ")).count();
        assert!(settings(&installed) > 30);
        assert_eq!(settings(&installed), settings(&example));
    }
}
