//! Exports a chunk of audit records as a file.

use std::io::{self, BufWriter, IntoInnerError, Read, Write};

use actix_web::web::Bytes;
use casement_domain::{
    StoreError,
    audit::{AuditChunk, AuditRecord},
};
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use futures_util::{Stream, StreamExt as _, stream};
use sha2::{Digest as _, Sha256};
use tokio::{runtime::Handle, sync::mpsc};

use super::record::write_line;
use crate::error::ApiError;

/// The bytes that are compressed at once. A buffer for a whole batch would double the memory of an export.
const COMPRESS_BUFFER_BYTES: usize = 64 << 10;
/// The bytes of a part of an uncompressed file.
const PART_BYTES: usize = 64 << 10;
/// The size of compressed records, in bytes, from which on a chunk takes no more of them. The headers before the body
/// contain its hash, so that a chunk is in memory as a whole. 50,000 usual records need a tenth of this.
const MAX_PACKED_BYTES: usize = 32 << 20;

/// The format of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// One record per line.
    Lines,
    /// One record per line, compressed as one gzip member.
    Packed,
}

/// A complete file. It is in memory in compressed form, also if it is sent as lines.
pub(super) struct File {
    format: Format,
    packed: Vec<u8>,
    /// The SHA-256 of the bytes that are sent, in lower-case hexadecimal.
    pub(super) sha256: String,
    /// The number of bytes that are sent.
    pub(super) size: u64,
}

impl File {
    /// Reads the records of a chunk and writes the file. A chunk of unusually large records is cut.
    ///
    /// # Errors
    /// The errors of the store.
    pub(super) async fn write(chunk: &mut AuditChunk, format: Format, runtime: &Handle) -> Result<Self, ApiError> {
        let mut batches = Box::pin(read(chunk.clone(), runtime.clone()).peekable());
        let mut writer = Writer::new(format);
        while let Some(records) = batches.next().await {
            let records = records?;
            let last = records.last().map(AuditRecord::position);
            let written = tokio::task::spawn_blocking(move || writer.write(records));
            // The next records are read meanwhile.
            let (written, next) = tokio::join!(written, batches.as_mut().peek());
            writer = written.map_err(ApiError::internal)?.map_err(ApiError::internal)?;
            if let Some(last) = last
                && next.is_some()
                && writer.packed_bytes() >= MAX_PACKED_BYTES
            {
                chunk.cut(last);
                break;
            }
        }
        // A record that was stored since the count is in the file too.
        chunk.count = writer.records;
        writer.finish().map_err(ApiError::internal)
    }

    /// Returns the parts of the body.
    pub(super) fn parts(self) -> impl Stream<Item = io::Result<Bytes>> {
        let source = match self.format {
            Format::Packed => Source::Whole(self.packed),
            Format::Lines => Source::Lines(Box::new(GzDecoder::new(io::Cursor::new(self.packed)))),
        };
        stream::try_unfold(source, async |source| source.next())
    }
}

/// What is left to send of a file.
enum Source {
    Whole(Vec<u8>),
    Lines(Box<GzDecoder<io::Cursor<Vec<u8>>>>),
    Nothing,
}

impl Source {
    fn next(self) -> io::Result<Option<(Bytes, Self)>> {
        match self {
            Self::Nothing => Ok(None),
            Self::Whole(bytes) => Ok(Some((Bytes::from(bytes), Self::Nothing))),
            Self::Lines(mut lines) => {
                let mut part = Vec::with_capacity(PART_BYTES);
                Read::by_ref(&mut *lines).take(PART_BYTES as u64).read_to_end(&mut part)?;
                // An empty part would end the body.
                Ok((!part.is_empty()).then(|| (Bytes::from(part), Self::Lines(lines))))
            }
        }
    }
}

/// Compresses records as lines.
struct Writer {
    format: Format,
    encoder: GzEncoder<Vec<u8>>,
    /// The hash of the lines, if these are sent.
    lines: Sha256,
    lines_bytes: u64,
    records: u32,
}

impl Writer {
    fn new(format: Format) -> Self {
        let encoder = GzEncoder::new(Vec::new(), Compression::fast());
        Self { format, encoder, lines: Sha256::new(), lines_bytes: 0, records: 0 }
    }

    fn packed_bytes(&self) -> usize {
        self.encoder.get_ref().len()
    }

    fn write(mut self, records: Vec<AuditRecord>) -> io::Result<Self> {
        self.records += u32::try_from(records.len()).unwrap_or(u32::MAX);
        let mut output = BufWriter::with_capacity(COMPRESS_BUFFER_BYTES, self);
        for record in records {
            write_line(record, &mut output)?;
        }
        output.into_inner().map_err(IntoInnerError::into_error)
    }

    fn finish(self) -> io::Result<File> {
        let Self { format, encoder, lines, lines_bytes, .. } = self;
        let packed = encoder.finish()?;
        let (hash, size) = match format {
            Format::Lines => (lines.finalize(), lines_bytes),
            Format::Packed => (Sha256::digest(&packed), packed.len() as u64),
        };
        Ok(File { format, packed, sha256: hash.iter().map(|byte| format!("{byte:02x}")).collect(), size })
    }
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.encoder.write_all(bytes)?;
        if self.format == Format::Lines {
            self.lines.update(bytes);
            self.lines_bytes += bytes.len() as u64;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
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
