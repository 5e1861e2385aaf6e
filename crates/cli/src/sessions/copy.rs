//! `casement sessions cp`: copies files to and from a session.

use std::fs::File;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use clap::Args;
use futures_util::TryStreamExt as _;
use http::Method;
use tokio_util::io::ReaderStream;

use crate::client::{Call, Client, streamed};
use crate::form::Form;
use crate::generated::save;
use crate::progress::Transfer;
use crate::server_options::ServerOptions;

/// The bounds of a directory that is copied from a session.
const LIMITS: casement_archive::Limits =
    casement_archive::Limits { entries: 100_000, bytes: 8 << 30, path_bytes: 4096, depth: 512, links: false };

#[derive(Debug, Args)]
pub(crate) struct CopyCommand {
    /// What to copy: a file or a folder here, or SESSION:/PATH
    from: String,
    /// Where to: a path here, or SESSION:/PATH; a path that ends with / is a folder
    to: String,
    #[command(flatten)]
    server: ServerOptions,
}

/// A path in a session.
struct Remote<'a> {
    session: &'a str,
    path: &'a str,
}

/// Returns the path in a session that a text names; `None` for a path here.
fn remote(text: &str) -> Option<Remote<'_>> {
    let (session, path) = text.split_once(':')?;
    (path.starts_with('/') && !session.is_empty() && !session.contains('/')).then_some(Remote { session, path })
}

/// Runs the command.
pub(super) async fn run(command: CopyCommand) -> anyhow::Result<()> {
    let client = command.server.client()?;
    match (remote(&command.from), remote(&command.to)) {
        (Some(from), None) => download(&client, &from, Path::new(&command.to)).await,
        (None, Some(to)) => upload(&client, Path::new(&command.from), &to).await,
        (Some(_), Some(_)) => bail!("one of the two paths must be here: copy to this machine first"),
        (None, None) => bail!("one of the two paths must be in a session, as SESSION:/PATH"),
    }
}

async fn download(client: &Client, from: &Remote<'_>, to: &Path) -> anyhow::Result<()> {
    let call = |operation| {
        let mut call = Call::new(Method::GET, ["browsers", from.session, "fs", operation]);
        call.query = vec![("path", from.path)];
        call
    };
    let (about, _) = client.value(call("file_info")).await?;
    let name = from.path.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    let target = target(to, name)?;
    if about["is_dir"] != true {
        let (headers, body) = client.send(call("read_file")).await?;
        return save(&headers, body, Some(&target)).await;
    }
    let archive = tempfile::NamedTempFile::new()?;
    let (headers, body) = client.send(call("download_dir_zip")).await?;
    save(&headers, body, Some(archive.path())).await?;
    std::fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    // The page may have made the files: nothing may leave the folder.
    let archive = File::open(archive.path())?;
    let unpacked =
        tokio::task::spawn_blocking(move || casement_archive::unpack(archive, LIMITS, None, &target)).await?;
    Ok(unpacked?)
}

/// Returns the path to write: a folder gets an entry of the copied name.
fn target(to: &Path, name: &str) -> anyhow::Result<PathBuf> {
    if !to.is_dir() && !to.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Ok(to.to_owned());
    }
    ensure!(!matches!(name, "" | "." | ".."), "the copied path has no name: name the target");
    Ok(to.join(name))
}

async fn upload(client: &Client, from: &Path, to: &Remote<'_>) -> anyhow::Result<()> {
    let about = std::fs::metadata(from).with_context(|| format!("cannot read {}", from.display()))?;
    let name = from.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let path = if to.path.ends_with('/') { format!("{}{name}", to.path) } else { to.path.to_owned() };
    if about.is_dir() {
        let folder = from.to_owned();
        let archive = tokio::task::spawn_blocking(move || casement_archive::package::pack_all(&folder)).await??;
        let mut form = Form::default();
        form.field("dest_path", &path);
        form.archive("zip_file", archive);
        let mut call = Call::new(Method::POST, ["browsers", to.session, "fs", "upload_zip"]);
        call.body = Some(form.into_body());
        client.value(call).await?;
        return Ok(());
    }
    let file = tokio::fs::File::open(from).await.with_context(|| format!("cannot read {}", from.display()))?;
    let transfer = Transfer::new(Some(about.len()), true);
    let content =
        ReaderStream::with_capacity(file, 1 << 16).inspect_ok(move |bytes: &Bytes| transfer.advance(bytes.len()));
    let mut call = Call::new(Method::PUT, ["browsers", to.session, "fs", "write_file"]);
    call.query = vec![("path", &path)];
    call.body = Some(("application/octet-stream".to_owned(), streamed(content)));
    client.value(call).await?;
    Ok(())
}
