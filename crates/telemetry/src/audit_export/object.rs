//! The content of an object.

use std::io::{self, Write as _};

use casement_domain::StoreError;
use casement_domain::audit::{AuditRecord, Position};
use casement_domain::audit_destination::AuditDestination;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{AuditExportDeps, WriteLine, start_of};

/// The number of records that are read at once.
const BATCH: u32 = 2_000;
/// The size of an object from which on it takes no more records: their number, and compressed bytes.
const MAX_RECORDS: u32 = 50_000;
const MAX_BYTES: usize = 8 << 20;

/// The bytes that are compressed at once.
const COMPRESS_BYTES: usize = 64 << 10;

/// Records of one hour as lines of JSON, compressed as one gzip member.
pub(super) struct Object {
    pub(super) content: Vec<u8>,
    pub(super) count: u32,
    pub(super) last: Position,
}

impl Object {
    /// Reads records between two positions, both exclusive: all of them if the object is planned, otherwise as many as
    /// one object may hold. Returns `None` if there are none.
    pub(super) async fn read(
        deps: &AuditExportDeps,
        destination: &AuditDestination,
        mut after: Position,
        mut before: Position,
    ) -> Result<Option<Self>, StoreError> {
        let is_planned = destination.planned.is_some();
        let mut writer = Writer { encoder: GzEncoder::new(Vec::new(), Compression::default()), count: 0 };
        let mut last = None;
        loop {
            let mut records = deps.records.following(destination.organization, after, before, BATCH).await?;
            let is_end = records.len() < BATCH as usize;
            if let Some(first) = records.first()
                && last.is_none()
                && !is_planned
            {
                let hour = start_of(AuditDestination::object_end(first.entry.at));
                before = if hour.at < before.at { hour } else { before };
                records.retain(|record| record.entry.at < before.at);
            }
            let Some(end) = records.last().map(AuditRecord::position) else { break };
            (after, last) = (end, Some(end));
            writer = writer.write(records, deps.write_line).await?;
            if is_end || (!is_planned && writer.is_full()) {
                break;
            }
        }
        let Some(last) = last else { return Ok(None) };
        let Writer { encoder, count } = writer;
        let content = encoder.finish().map_err(broken)?;
        Ok(Some(Self { content, count, last }))
    }
}

struct Writer {
    encoder: GzEncoder<Vec<u8>>,
    count: u32,
}

impl Writer {
    fn is_full(&self) -> bool {
        self.count >= MAX_RECORDS || self.encoder.get_ref().len() >= MAX_BYTES
    }

    /// Compresses records on a thread for long work.
    async fn write(mut self, records: Vec<AuditRecord>, write_line: WriteLine) -> Result<Self, StoreError> {
        let writing = tokio::task::spawn_blocking(move || {
            self.count += u32::try_from(records.len()).unwrap_or(u32::MAX);
            let mut lines = Vec::with_capacity(2 * COMPRESS_BYTES);
            for record in records {
                write_line(record, &mut lines)?;
                if lines.len() >= COMPRESS_BYTES {
                    self.encoder.write_all(&lines)?;
                    lines.clear();
                }
            }
            self.encoder.write_all(&lines)?;
            Ok(self)
        });
        writing.await.map_err(io::Error::other).and_then(|written| written).map_err(broken)
    }
}

fn broken(error: io::Error) -> StoreError {
    StoreError::Broken { operation: "audit_export.write", source: error.into() }
}
