//! Creates ZIP archives with Python, like callers.

use std::process::Command;

use anyhow::ensure;

/// Runs a Python program that writes bytes to `out`, and returns the bytes. `io`, `json`, `stat`, `struct`, `sys`,
/// `warnings` and `zipfile` are imported.
///
/// # Errors
/// When Python cannot be started or fails, with its error output.
pub fn python(program: &str) -> anyhow::Result<Vec<u8>> {
    let program = format!(
        "import sys, io, zipfile, struct, stat, json, warnings\nout = io.BytesIO()\n{program}\nsys.stdout.buffer.write(out.getvalue())"
    );
    let done = Command::new("python3").args(["-W", "ignore", "-c", &program]).output()?;
    ensure!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    Ok(done.stdout)
}

/// Returns a compressed archive with the entries that the lines of a Python program put into `z`.
///
/// # Errors
/// As [`python`].
pub fn zip_of(entries: &str) -> anyhow::Result<Vec<u8>> {
    let entries = entries.replace('\n', "\n ");
    python(&format!("with zipfile.ZipFile(out, 'w', zipfile.ZIP_DEFLATED) as z:\n {entries}"))
}

/// Returns an archive of these names and texts.
///
/// # Errors
/// As [`python`].
pub fn zip(files: &[(&str, &str)]) -> anyhow::Result<Vec<u8>> {
    let files = serde_json::to_string(files)?;
    zip_of(&format!("[z.writestr(name, text) for name, text in json.loads({files:?})]"))
}
