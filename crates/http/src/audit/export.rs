//! Exports a chunk of audit records as a streamed file.

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

/// The bytes that are compressed at once. A buffer for a whole batch would double the memory of an export.
const COMPRESS_BUFFER_BYTES: usize = 64 << 10;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One record per line.
    Lines,
    /// One record per line, compressed as one gzip member.
    Packed,
}

/// Writes records as lines, optionally compressed.
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

    /// Writes records, and returns the bytes that can be sent.
    fn write(&mut self, records: Vec<AuditRecord>) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Lines => lines(Vec::with_capacity(records.len() * 512), records),
            Self::Packed(encoder) => {
                let written = lines(BufWriter::with_capacity(COMPRESS_BUFFER_BYTES, encoder), records)?;
                let encoder = written.into_inner().map_err(IntoInnerError::into_error)?;
                Ok(std::mem::take(encoder.get_mut()))
            }
        }
    }

    /// Returns the remaining bytes.
    fn finish(self) -> std::io::Result<Vec<u8>> {
        match self {
            Self::Lines => Ok(Vec::new()),
            Self::Packed(encoder) => encoder.finish(),
        }
    }
}

fn lines<W: Write>(mut output: W, records: Vec<AuditRecord>) -> std::io::Result<W> {
    for record in records {
        serde_json::to_writer(&mut output, &AuditRecordBody::from(record))?;
        output.write_all(b"\n")?;
    }
    Ok(output)
}

/// Streams batches of records. They are read on `runtime`, one batch ahead of the reader, once the first one is polled.
fn read(chunk: AuditChunk, runtime: Handle) -> impl Stream<Item = Result<Vec<AuditRecord>, StoreError>> {
    let start = async move {
        let (sender, receiver) = mpsc::channel(1);
        runtime.spawn(send(chunk, sender));
        stream::unfold(receiver, |mut receiver| async { Some((receiver.recv().await?, receiver)) })
    };
    stream::once(start).flatten()
}

/// Sends all batches, until the receiver is dropped.
async fn send(mut chunk: AuditChunk, sender: mpsc::Sender<Result<Vec<AuditRecord>, StoreError>>) {
    loop {
        let batch = chunk.next_batch().await;
        let has_more = match &batch {
            Ok(records) if records.is_empty() => return,
            batch => batch.is_ok(),
        };
        if sender.send(batch).await.is_err() || !has_more {
            return;
        }
    }
}

/// Streams the file. The next records are read while earlier ones are written. Neither starts before the first poll.
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
            let result = match work.next().await? {
                Some(Err(error)) => Err(ApiError::from(error)),
                Some(Ok(records)) => {
                    let written =
                        tokio::task::spawn_blocking(move || writer.write(records).map(|part| (part, Some(writer))));
                    let (written, _) = tokio::join!(written, work.as_mut().peek());
                    written.map_err(ApiError::internal).and_then(|written| written.map_err(ApiError::internal))
                }
                None => writer.finish().map(|part| (part, None)).map_err(ApiError::internal),
            };
            Some(match result {
                Ok((part, writer)) => (Ok(Bytes::from(part)), (writer, work)),
                Err(error) => {
                    tracing::warn!(error = error.chain(), "an audit export failed");
                    (Err(actix_web::Error::from(error)), (None, work))
                }
            })
        });
    // An empty chunk would end the body.
    parts.filter(|part| std::future::ready(!matches!(part, Ok(bytes) if bytes.is_empty())))
}
