//! `cargo xtask openapi`: generates the committed OpenAPI document and table of operations from the declared
//! operations, and the page of metrics from their table.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::workspace;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare; fail if a committed file differs from the generated one
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let document = printed(&["openapi"])?;
    let parsed: serde_json::Value = serde_json::from_str(&document).context("`casement openapi` did not print JSON")?;
    if parsed.get("openapi").is_none() {
        bail!("`casement openapi` printed JSON, but not an OpenAPI document");
    }
    let operations = printed(&["openapi", "--operations"])?;
    let metrics = printed(&["openapi", "--metrics"])?;
    let files = [("docs/openapi.json", document), ("docs/operations.md", operations), ("docs/metrics.md", metrics)];
    for (file, generated) in files {
        let path = workspace::root().join(file);
        if !options.check {
            fs::write(&path, generated).with_context(|| format!("cannot write {}", path.display()))?;
            eprintln!("==> wrote {}", path.display());
            continue;
        }
        let committed = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if committed != generated {
            bail!("{file} is not what the code declares: run `cargo xtask openapi` and commit it");
        }
    }
    Ok(())
}

/// Returns the output of the program, with one newline at its end.
fn printed(arguments: &[&str]) -> Result<String> {
    let mut cargo = workspace::cargo();
    cargo.args(["run", "--locked", "--quiet", "--package", "casement", "--"]).args(arguments);
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("`casement {}` ended with {}", arguments.join(" "), output.status);
    }
    let text = String::from_utf8(output.stdout).context("`casement openapi` did not print UTF-8")?;
    Ok(format!("{}\n", text.trim_end()))
}
