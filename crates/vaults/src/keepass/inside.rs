//! The program that reads a database: it answers one request within its own limits, and ends.
//!
//! The file determines the time and the memory that are needed to open it, compressed content may expand to any size,
//! and groups may be nested to any depth. None of that may affect the server.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

use ::keepass::{Database, DatabaseKey, db::DatabaseOpenError};
use rustix::process::{Resource, Rlimit, setrlimit};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::database;
use super::messages::{Query, ReaderRequest, ReaderResponse};

/// The maximum size of a file in bytes, attachments included.
const MAX_BYTES: u64 = 64 << 20;
/// The maximum address space in bytes: opening a file may need a GiB.
const MAX_MEMORY: u64 = 2 << 30;
/// The maximum processor time in seconds.
const MAX_TIME: u64 = 30;
/// The maximum size of a request in bytes.
const MAX_QUESTION: u64 = 1 << 20;

/// The body of the program whose path [`Keepass::new`](super::Keepass::new) receives: reads a request about this file
/// from standard input and writes the response to standard output. It limits the whole process.
pub fn read_keepass(file: &Path) -> ExitCode {
    match answer_one(file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_one(file: &Path) -> io::Result<()> {
    for (resource, max) in [(Resource::As, MAX_MEMORY), (Resource::Cpu, MAX_TIME), (Resource::Core, 0)] {
        setrlimit(resource, Rlimit { current: Some(max), maximum: Some(max) })?;
    }
    // Allocates 64 KiB, so that the buffer of a usual request is never moved, which would leave a copy.
    let mut question = Zeroizing::new(Vec::with_capacity(64 << 10));
    io::stdin().lock().take(MAX_QUESTION).read_to_end(&mut question)?;
    let ReaderRequest { password, query } = serde_json::from_slice(&question)?;
    let answer = respond(file, &password.0, &query).unwrap_or_else(|fault| fault);
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    out.flush()
}

fn respond(file: &Path, password: &SecretString, query: &Query) -> Result<ReaderResponse, ReaderResponse> {
    let database = open(file, password)?;
    match query {
        Query::Opens => Ok(ReaderResponse::Opens),
        Query::Logins => database::logins(&database),
        Query::Secrets(id) => database::secrets(&database, id),
    }
}

fn open(file: &Path, password: &SecretString) -> Result<Database, ReaderResponse> {
    let unreachable = |error: io::Error| ReaderResponse::NoFile(error.kind().to_string());
    // A pipe in its place would never be open.
    let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let file = File::options().read(true).custom_flags(flags).open(file).map_err(unreachable)?;
    let is_file = file.metadata().map_err(unreachable)?.is_file();
    let mut bytes = Vec::new();
    if !is_file || file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreachable)? as u64 > MAX_BYTES {
        return Err(ReaderResponse::InvalidValue(format!("no file of at most {MAX_BYTES} bytes")));
    }
    let key = DatabaseKey::new().with_password(password.expose_secret());
    Database::parse(&bytes, key).map_err(|error| match error {
        // In the older format a wrong password is detected only in the decrypted content.
        DatabaseOpenError::Key(_) | DatabaseOpenError::Cryptography(_) => ReaderResponse::Refused,
        _ => ReaderResponse::InvalidValue("no KeePass database that can be read".to_owned()),
    })
}
