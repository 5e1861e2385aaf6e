//! The handlers that upload forms of files.

use std::collections::BTreeMap;

use casement_domain::{
    fs::{AbsolutePath, Files, Upload, Uploads},
    session_operation::{ByteStream, OperationError},
};
use futures_util::StreamExt as _;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::transfer::{MAX_UPLOAD, upload_response};
use crate::{
    answer::Answer,
    multipart::{Form, Items, Part},
    request::{ActiveSession, Request},
    schema::ToSchema,
    spool::FormSpool,
};

/// The maximum number of chunks of an upload that wait for the session.
const MAX_QUEUED_CHUNKS: usize = 4;
const LIST: &str = "files";
const FILES: &str = "files[][file]";
const FILE: &str = "file";
const DEST_PATH: &str = "dest_path";

/// Files and their paths, as parts `files[0][file]` and `files[0][dest_path]`, or without the indices: the n-th path
/// belongs to the n-th file then. A file that comes before its path has at most 512 MiB.
#[derive(ToSchema)]
#[schema(as = UploadFiles)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct FilesForm {
    /// 1 to 100 files.
    files: Vec<FileForm>,
}

#[derive(ToSchema)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
struct FileForm {
    /// The absolute path of the file. Missing directories are created.
    dest_path: String,
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
}

pub(crate) async fn upload_files(mut request: Request<ActiveSession>) -> Answer {
    let mut form = request.form(MAX_UPLOAD, &[FILES]).await?;
    let body_end = form.take_body_end();
    let uploaded = match Pairing::begin(&form) {
        Ok(pairing) => {
            let files = uploads(form, pairing, request.api().spool.for_form());
            request.services().files.upload(request.session(), files).await
        }
        Err(error) => {
            drop(form);
            Err(error)
        }
    };
    upload_response(uploaded, body_end).await
}

/// The parts of an upload that wait for their counterparts, by the items of the list.
struct Pairing {
    items: Items,
    paths: BTreeMap<usize, AbsolutePath>,
    /// The files that came before their paths.
    files: BTreeMap<usize, ByteStream>,
}

impl Pairing {
    /// Reads the paths that come before the first file.
    fn begin(form: &Form) -> Result<Self, OperationError> {
        let (mut items, mut paths) = (Items::new(LIST), Vec::new());
        for (name, value) in form.texts() {
            if let Some((DEST_PATH, item)) = items.place(name)? {
                paths.push((item, value.to_owned()));
            }
        }
        let has_none = paths.is_empty() && form.has_file();
        let paths = if has_none { Vec::new() } else { Files::upload_paths(paths)? };
        Ok(Self { items, paths: paths.into_iter().collect(), files: BTreeMap::new() })
    }

    /// Reads a text. Returns the file that has waited for it.
    fn text(&mut self, name: &str, value: String) -> Result<Option<(AbsolutePath, ByteStream)>, OperationError> {
        let Some((DEST_PATH, item)) = self.items.place(name)? else { return Ok(None) };
        for (item, path) in Files::upload_paths(vec![(item, value)])? {
            match self.files.remove(&item) {
                Some(file) => return Ok(Some((path, file))),
                None => drop(self.paths.insert(item, path)),
            }
        }
        Ok(None)
    }

    /// Returns the item of a file, and its path if that is known.
    fn file(&mut self, name: &str) -> Result<Option<(usize, Option<AbsolutePath>)>, OperationError> {
        let placed = self.items.place(name)?;
        Ok(placed.map(|(_, item)| (item, self.paths.remove(&item))))
    }
}

/// Streams the files of a form, each after its path.
fn uploads(form: Form, pairing: Pairing, spool: FormSpool) -> Uploads {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_CHUNKS);
    tokio::spawn(async move {
        if let Err(error) = forward(form, pairing, &spool, &sender).await {
            // If the receiver is dropped, the upload has ended and the error has no reader.
            drop(sender.send(Err(error)).await);
        }
    });
    ReceiverStream::new(receiver).boxed()
}

type Sender = mpsc::Sender<Result<Upload, OperationError>>;

async fn forward(
    mut form: Form,
    mut pairing: Pairing,
    spool: &FormSpool,
    sender: &Sender,
) -> Result<(), OperationError> {
    while let Some(part) = form.next_part().await? {
        match part {
            Part::Text { name, value } => {
                if let Some((path, file)) = pairing.text(&name, value)? {
                    send(path, file, sender).await?;
                }
            }
            Part::File(file) => {
                let name = file.name.clone();
                match pairing.file(&name)? {
                    None => {}
                    Some((_, Some(path))) => send(path, file.boxed(), sender).await?,
                    Some((item, None)) => {
                        let stored = tokio::select! {
                            stored = spool.store(&name, file.boxed()) => stored?,
                            () = sender.closed() => return Err(over()),
                        };
                        drop(pairing.files.insert(item, stored));
                    }
                }
            }
        }
    }
    Ok(pairing.items.check_complete(&[DEST_PATH, FILE])?)
}

async fn send(path: AbsolutePath, mut content: ByteStream, sender: &Sender) -> Result<(), OperationError> {
    sender.send(Ok(Upload::File(path))).await.map_err(|_| over())?;
    while let Some(piece) = content.next().await.transpose()? {
        sender.send(Ok(Upload::Data(piece))).await.map_err(|_| over())?;
    }
    Ok(())
}

/// Returns the error of an upload whose reader has ended it.
fn over() -> OperationError {
    OperationError::Broken("the upload is over".to_owned())
}

/// An archive and the directory into which it is unpacked. An archive that comes before the path has at most 512 MiB.
#[derive(ToSchema)]
#[schema(as = UploadZip)]
#[expect(dead_code, reason = "only the OpenAPI document uses it; the form is read as a stream")]
pub(crate) struct ZipForm {
    /// The absolute path of the directory. It is created if it does not exist.
    dest_path: String,
    #[schema(value_type = String, format = Binary)]
    zip_file: Vec<u8>,
}

const ZIP_FILE: &str = "zip_file";

pub(crate) async fn upload_zip(mut request: Request<ActiveSession>) -> Answer {
    let mut form = request.form(MAX_UPLOAD, &[ZIP_FILE]).await?;
    let body_end = form.take_body_end();
    upload_response(unpack(&request, form).await, body_end).await
}

async fn unpack(request: &Request<ActiveSession>, mut form: Form) -> Result<(), OperationError> {
    let has_archive = form.has_file();
    let waiting = match form.text(DEST_PATH)? {
        None => form.spool_only_file(ZIP_FILE, &request.api().spool).await?,
        Some(_) => None,
    };
    let path = Files::unpack_path(form.text(DEST_PATH)?.map(str::to_owned), has_archive)?;
    let archive = match waiting {
        Some(archive) => Some(archive),
        None => form.only_file(ZIP_FILE).await?,
    };
    let archive = archive.ok_or_else(|| OperationError::Broken(format!("the form has no {ZIP_FILE}")))?;
    request.services().files.unpack(request.session(), path, archive).await
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use casement_domain::{field::FieldCode, storage::UnlimitedDisk};
    use futures_util::TryStreamExt as _;

    use super::*;
    use crate::{
        multipart::tests::{endless_form, form, part},
        spool::Spool,
    };

    const PATH: &str = "files[][dest_path]";

    fn form_spool() -> FormSpool {
        Spool::new(std::env::temp_dir(), Arc::new(UnlimitedDisk)).for_form()
    }

    /// Returns the paths and contents of the files of a form with these parts.
    async fn uploaded(parts: &[(&str, &str)]) -> Result<Vec<(String, String)>, OperationError> {
        let body: String = parts.iter().map(|(name, content)| part(name, content)).collect::<String>() + "--b--\r\n";
        let form = form(&body, 11).await?;
        let pairing = Pairing::begin(&form)?;
        let mut files = Vec::new();
        for part in uploads(form, pairing, form_spool()).try_collect::<Vec<_>>().await? {
            match (part, files.last_mut()) {
                (Upload::File(path), _) => files.push((path.to_string(), String::new())),
                (Upload::Data(data), Some((_, content))) => content.push_str(&String::from_utf8_lossy(&data)),
                (Upload::Data(_), None) => panic!("bytes of no file"),
            }
        }
        files.sort();
        Ok(files)
    }

    /// Returns the fields that an upload lacks.
    async fn lacking(parts: &[(&str, &str)]) -> Vec<String> {
        match uploaded(parts).await {
            Err(OperationError::Invalid(invalid)) => {
                assert!(invalid.fields().iter().all(|field| field.code == FieldCode::Required), "{invalid:?}");
                invalid.fields().iter().map(|field| field.field.clone()).collect()
            }
            other => panic!("{parts:?}: {other:?}"),
        }
    }

    #[tokio::test]
    async fn paths_and_files_are_paired_by_position_or_by_index_in_any_order() {
        let expected = [("/a".to_owned(), "one".to_owned()), ("/c".to_owned(), String::new())];
        let (a, b) = ("/a", "/b/../c");
        for parts in [
            [(PATH, a), (PATH, b), (FILES, "one"), (FILES, "")],
            [(PATH, a), (FILES, "one"), (PATH, b), (FILES, "")],
            [(FILES, "one"), (PATH, a), (FILES, ""), (PATH, b)],
            [(FILES, "one"), (FILES, ""), (PATH, a), (PATH, b)],
            [("files[0][dest_path]", a), ("files[1][dest_path]", b), ("files[0][file]", "one"), ("files[1][file]", "")],
            [("files[1][file]", ""), ("files[0][file]", "one"), ("files[0][dest_path]", a), ("files[1][dest_path]", b)],
            [("files[1][dest_path]", b), ("files[0][file]", "one"), ("files[1][file]", ""), ("files[0][dest_path]", a)],
        ] {
            assert_eq!(uploaded(&parts).await.expect("two files"), expected, "{parts:?}");
        }
    }

    #[tokio::test]
    async fn an_upload_that_is_over_stores_no_more_of_a_file() {
        let form = endless_form(&part(FILES, "one")).await.expect("a form");
        let pairing = Pairing::begin(&form).expect("no path yet");
        let (sender, receiver) = mpsc::channel(1);
        drop(receiver);
        let spool = form_spool();
        let forwarded = tokio::time::timeout(Duration::from_secs(10), forward(form, pairing, &spool, &sender)).await;
        assert!(matches!(forwarded, Ok(Err(OperationError::Broken(_)))), "it waits for the rest of the file");
    }

    #[tokio::test]
    async fn a_file_without_a_path_and_a_path_without_a_file_are_named() {
        let (a, b) = ((PATH, "/a"), (PATH, "/b"));
        assert_eq!(lacking(&[a, b, (FILES, "one")]).await, ["files[1].file"]);
        assert_eq!(lacking(&[a, (FILES, "one"), (FILES, "two")]).await, ["files[1].dest_path"]);
        assert_eq!(lacking(&[a]).await, ["files[0].file"]);
        assert_eq!(lacking(&[(FILES, "one")]).await, ["files[0].dest_path"]);
        assert_eq!(lacking(&[]).await, ["files"]);
        let gap = [("files[1][dest_path]", "/a"), ("files[1][file]", "one")];
        assert_eq!(lacking(&gap).await, ["files[0].dest_path", "files[0].file"]);
    }

    #[tokio::test]
    async fn the_parts_of_a_list_have_all_an_index_or_none() {
        let indexed = ("files[0][dest_path]", "/a");
        for (parts, named) in [
            (vec![indexed, (FILES, "one")], FILES),
            (vec![indexed, indexed, ("files[0][file]", "one")], "files[0][dest_path] is given twice"),
            (vec![indexed, ("files[0][file]", "1"), ("files[0][file]", "2")], "files[0][file] is given twice"),
            (vec![("files[100][dest_path]", "/a")], "files[100][dest_path]"),
            (vec![("files[00][dest_path]", "/a")], "files[00][dest_path]"),
            (vec![("files[x][dest_path]", "/a")], "files[x][dest_path]"),
        ] {
            let refused = uploaded(&parts).await;
            assert!(
                matches!(&refused, Err(OperationError::Broken(text)) if text.contains(named)),
                "{parts:?}: {refused:?}"
            );
        }
    }
}
