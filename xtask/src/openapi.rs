//! `cargo xtask openapi`: the committed document equals the one generated from the handlers.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare; fail when docs/openapi.json is not what the handlers say
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let made = document()?;
    let path = workspace::root().join("docs/openapi.json");
    if !options.check {
        fs::write(&path, made).with_context(|| format!("cannot write {}", path.display()))?;
        eprintln!("==> wrote {}", path.display());
        return Ok(());
    }
    let kept = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    if kept != made {
        bail!("docs/openapi.json is not what the handlers say: run `cargo xtask openapi` and commit it");
    }
    Ok(())
}

/// Returns the document as the program prints it, with one newline at its end.
fn document() -> Result<String> {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--locked", "--quiet", "--package", "casement", "--", "openapi"]);
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`casement openapi` ended with {}", output.status);
    }
    let text = String::from_utf8(output.stdout).context("`casement openapi` did not print UTF-8")?;
    let document: serde_json::Value = serde_json::from_str(&text).context("`casement openapi` did not print JSON")?;
    if document.get("openapi").is_none() {
        bail!("`casement openapi` printed JSON, but not an OpenAPI document");
    }
    Ok(format!("{}\n", text.trim_end()))
}
