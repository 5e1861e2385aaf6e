//! Operations that receive content: one file, several files, or an archive.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::{Buf as _, Bytes, BytesMut};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::task::spawn_blocking;

use super::draft::{CreatedDirectories, Draft, above, unnamed};
use super::fault::{Fault, Field};
use super::path::Place;
use super::zip::unpack;
use casement_agent_protocol::fs::{Frame, MAX_FRAME_BYTES, MAX_PATH_BYTES, Write};

/// The bytes that are collected before they are written, so that few switches to another thread are necessary.
const GATHERED: usize = 256 << 10;
/// The maximum number of files of one upload.
const MAX_FILES: usize = 1000;
/// The modes of new directories and files that arrive without a mode.
const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// Runs blocking work on a thread for blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    spawn_blocking(work).await.map_err(Fault::broken)?
}

async fn piece(body: &mut Incoming) -> Result<Option<Bytes>, Fault> {
    loop {
        match body.frame().await.transpose().map_err(Fault::broken)? {
            None => return Ok(None),
            Some(frame) => {
                if let Ok(data) = frame.into_data() {
                    return Ok(Some(data));
                }
            }
        }
    }
}

/// A file, and the data that was not written to it yet.
struct Filling {
    draft: Draft,
    gathered: BytesMut,
}

impl Filling {
    async fn begin(path: String, mode: u32, field: Field) -> Result<Self, Fault> {
        let draft = blocking(move || Draft::new(&path, mode, field)).await?;
        Ok(Self { draft, gathered: BytesMut::new() })
    }

    async fn add(mut self, piece: &[u8]) -> Result<Self, Fault> {
        self.gathered.extend_from_slice(piece);
        if self.gathered.len() < GATHERED { Ok(self) } else { self.written().await }
    }

    async fn written(mut self) -> Result<Self, Fault> {
        blocking(move || {
            self.draft.file.write_all(&self.gathered).map_err(|error| self.draft.fault(error))?;
            self.gathered.clear();
            Ok(self)
        })
        .await
    }
}

pub(super) async fn write(requested: Write, mut body: Incoming) -> Result<(), Fault> {
    let mut filling = Filling::begin(requested.path, requested.mode, Field::Path).await?;
    while let Some(piece) = piece(&mut body).await? {
        filling = filling.add(&piece).await?;
    }
    let filling = filling.written().await?;
    blocking(move || filling.draft.publish()).await
}

/// Receives several files: all of them or, as far as the kernel allows it, none.
pub(super) async fn upload(mut body: Incoming) -> Result<(), Fault> {
    let mut frames = Frames { buffer: BytesMut::new() };
    let mut made = CreatedDirectories::default();
    let mut whole: Vec<Draft> = Vec::new();
    let mut filling: Option<Filling> = None;
    loop {
        let (frame, content) = frames.next(&mut body).await?;
        match frame {
            Frame::Data => {
                let open = filling.take().ok_or_else(|| Fault::broken("bytes of no file"))?;
                filling = Some(open.add(&content).await?);
                continue;
            }
            Frame::File | Frame::End => {
                if let Some(filled) = filling.take() {
                    whole.push(filled.written().await?.draft);
                }
            }
        }
        if frame == Frame::End {
            break;
        }
        if whole.len() >= MAX_FILES || content.len() > MAX_PATH_BYTES {
            return Err(Fault::broken("too many files, or too long a path"));
        }
        let path = String::from_utf8(content.into()).map_err(Fault::broken)?;
        let (extended, path) = blocking(move || {
            let mut made = made;
            made.directories(above(&path), DIRECTORY_MODE, Field::Uploaded)?;
            Ok((made, path))
        })
        .await?;
        made = extended;
        filling = Some(Filling::begin(path, FILE_MODE, Field::Uploaded).await?);
    }
    blocking(move || {
        whole.into_iter().try_for_each(Draft::publish)?;
        made.keep();
        Ok(())
    })
    .await
}

/// Reads the frames of an upload.
struct Frames {
    buffer: BytesMut,
}

impl Frames {
    async fn next(&mut self, body: &mut Incoming) -> Result<(Frame, Bytes), Fault> {
        const HEAD: usize = 5;
        while self.buffer.len() < HEAD {
            self.more(body).await?;
        }
        let frame = Frame::from_byte(self.buffer.get_u8()).ok_or_else(|| Fault::broken("no such frame"))?;
        let length = self.buffer.get_u32() as usize;
        if length > MAX_FRAME_BYTES {
            return Err(Fault::broken("too long a frame"));
        }
        while self.buffer.len() < length {
            self.more(body).await?;
        }
        Ok((frame, self.buffer.split_to(length).freeze()))
    }

    async fn more(&mut self, body: &mut Incoming) -> Result<(), Fault> {
        let piece = piece(body).await?.ok_or_else(|| Fault::broken("it ended too early"))?;
        self.buffer.extend_from_slice(&piece);
        Ok(())
    }
}

/// Receives an archive into a file without a name, and unpacks it when it is complete.
pub(super) async fn unzip(path: String, mut body: Incoming) -> Result<(), Fault> {
    let (made, file, path) = blocking(move || {
        let mut made = CreatedDirectories::default();
        made.directories(&path, DIRECTORY_MODE, Field::Unpacked).map_err(|fault| fault.into_no_directory(&path))?;
        let (directory, _) = Place::directory(&path, Field::Unpacked)?;
        let file = unnamed(&directory).map_err(|error| Fault::io(Field::Unpacked, &path, error.into()))?;
        Ok((made, std::fs::File::from(file), path))
    })
    .await?;
    let mut file = file;
    let mut gathered = BytesMut::new();
    loop {
        let piece = piece(&mut body).await?;
        let over = piece.is_none();
        gathered.extend_from_slice(&piece.unwrap_or_default());
        if over || gathered.len() >= GATHERED {
            (file, gathered) = blocking(move || {
                file.write_all(&gathered).map_err(|error| Fault::io(Field::Archive, "the archive", error))?;
                gathered.clear();
                Ok((file, gathered))
            })
            .await?;
        }
        if over {
            break;
        }
    }
    // The caller may disconnect before the archive is unpacked.
    let given_up = GivenUp::default();
    let seen = Arc::clone(&given_up.0);
    blocking(move || {
        unpack::archive(&file, &path, &seen)?;
        made.keep();
        Ok(())
    })
    .await
}

/// Sets a flag when it is dropped.
#[derive(Default)]
struct GivenUp(Arc<AtomicBool>);

impl Drop for GivenUp {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
