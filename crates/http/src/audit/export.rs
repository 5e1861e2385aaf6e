//! A chunk as a file that is made while it is sent.

use std::io::{BufWriter, IntoInnerError, Write};

use actix_web::web::Bytes;
use casement_domain::{
    StoreError,
    audit::{AuditChunk, AuditRecord},
};
use flate2::{Compression, write::GzEncoder};
use futures_util::{Stream, StreamExt as _, stream};
use tokio::{runtime::Handle, sync::mpsc};

use super::record::AuditRecordBody;
use crate::error::ApiError;

/// How much is packed at once, in bytes. The lines of a whole batch beside what is packed would double what an export holds.
const PACKED_AT_ONCE: usize = 64 << 10;

/// What a file is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// A record a line.
    Lines,
    /// The same, packed as one whole member.
    Packed,
}

/// Makes lines of records, and packs them.
enum Writer {
    Lines,
    Packed(Box<GzEncoder<Vec<u8>>>),
}

impl Writer {
    fn new(format: Format) -> Self {
        match format {
            Format::Lines => Self::Lines,
            Format::Packed => Self::Packed(Box::new(GzEncoder::new(Vec::new(), Compression::fast()))),
        }
    }

    /// What can be sent once these records are written.
    fn write(&mut self, records: Vec<AuditRecord>) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Lines => lines(Vec::with_capacity(records.len() * 512), records),
            Self::Packed(packer) => {
                let packed = lines(BufWriter::with_capacity(PACKED_AT_ONCE, packer), records)?;
                let packer = packed.into_inner().map_err(IntoInnerError::into_error)?;
                Ok(std::mem::take(packer.get_mut()))
            }
        }
    }

    /// What is left to be sent.
    fn finish(self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Lines => Ok(Vec::new()),
            Self::Packed(packer) => packer.finish(),
        }
    }
}

fn lines<W: Write>(mut to: W, records: Vec<AuditRecord>) -> std::io::Result<W> {
    for record in records {
        serde_json::to_writer(&mut to, &AuditRecordBody::from(record))?;
        to.write_all(b"\n")?;
    }
    Ok(to)
}

/// Batches of records. They are read on `runtime`, one ahead of whoever takes them, from when the first is asked for.
fn read(chunk: AuditChunk, runtime: Handle) -> impl Stream<Item = Result<Vec<AuditRecord>, StoreError>> {
    let reading = async move {
        let (sender, receiver) = mpsc::channel(1);
        runtime.spawn(send(chunk, sender));
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) })
    };
    stream::once(reading).flatten()
}

/// To the end, unless nobody wants the rest.
async fn send(mut chunk: AuditChunk, sender: mpsc::Sender<Result<Vec<AuditRecord>, StoreError>>) {
    loop {
        let batch = chunk.next_batch().await;
        let more = match &batch {
            Ok(records) if records.is_empty() => return,
            batch => batch.is_ok(),
        };
        if sender.send(batch).await.is_err() || !more {
            return;
        }
    }
}

/// The next records are read while those before are packed. Neither is done before somebody takes the file.
pub(super) fn file(
    chunk: AuditChunk,
    format: Format,
    runtime: Handle,
) -> impl Stream<Item = Result<Bytes, actix_web::Error>> {
    let batches = read(chunk, runtime);
    let work = batches.map(Some).chain(stream::once(async { None }));
    let parts =
        stream::unfold((Some(Writer::new(format)), Box::pin(work.peekable())), |(writer, mut work)| async move {
            let mut writer = writer?;
            let done = match work.next().await? {
                Some(Err(error)) => Err(ApiError::from(error)),
                Some(Ok(records)) => {
                    let packed =
                        tokio::task::spawn_blocking(move || writer.write(records).map(|part| (part, Some(writer))));
                    let (packed, _) = tokio::join!(packed, work.as_mut().peek());
                    packed.map_err(ApiError::internal).and_then(|done| done.map_err(ApiError::internal))
                }
                None => writer.finish().map(|part| (part, None)).map_err(ApiError::internal),
            };
            Some(match done {
                Ok((part, writer)) => (Ok(Bytes::from(part)), (writer, work)),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "an export broke off");
                    (Err(actix_web::Error::from(error)), (None, work))
                }
            })
        });
    // An empty part would end the body.
    parts.filter(|part| std::future::ready(!matches!(part, Ok(bytes) if bytes.is_empty())))
}
