//! The program that reads a database: it answers one question, within limits of its own, and ends.
//!
//! How long opening takes and how much memory stands in the file, what was packed unfolds to any size, and groups may lie in groups
//! without end. None of that may happen to the server.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;
use std::process::ExitCode;

use ::keepass::{Database, DatabaseKey, db::DatabaseOpenError};
use rustix::process::{Resource, Rlimit, setrlimit};
use secrecy::{ExposeSecret as _, SecretString};
use zeroize::Zeroizing;

use super::database;
use super::talk::{Answered, Asked, What};

/// Bytes of a file; attachments lie in it, too.
const MAX_BYTES: u64 = 64 << 20;
/// Bytes of address space: opening may take a gibibyte by the file's own word.
const MAX_MEMORY: u64 = 2 << 30;
/// Seconds of processors' time.
const MAX_TIME: u64 = 30;
/// Bytes of a question.
const MAX_QUESTION: u64 = 1 << 20;

/// What the program does whose path [`Keepass::new`](super::Keepass::new) is given: reads a question about this file from standard
/// input and writes the answer to standard output. It limits the whole process.
pub fn read_keepass(file: &Path) -> ExitCode {
    match answer_one(file) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

fn answer_one(file: &Path) -> io::Result<()> {
    for (resource, most) in [(Resource::As, MAX_MEMORY), (Resource::Cpu, MAX_TIME), (Resource::Core, 0)] {
        setrlimit(resource, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    // As long as it can get, so that it never moves and leaves itself behind.
    let mut question = Zeroizing::new(Vec::with_capacity(64 << 10));
    io::stdin().lock().take(MAX_QUESTION).read_to_end(&mut question)?;
    let Asked { password, what } = serde_json::from_slice(&question)?;
    let answer = answered(file, &password.0, &what).unwrap_or_else(|fault| fault);
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, &answer)?;
    out.flush()
}

fn answered(file: &Path, password: &SecretString, what: &What) -> Result<Answered, Answered> {
    let database = open(file, password)?;
    match what {
        What::Opens => Ok(Answered::Opens),
        What::Logins => database::logins(&database),
        What::Secrets(id) => database::secrets(&database, id),
    }
}

fn open(file: &Path, password: &SecretString) -> Result<Database, Answered> {
    let unreachable = |error: io::Error| Answered::NoFile(error.kind().to_string());
    let file = File::open(file).map_err(unreachable)?;
    let is_file = file.metadata().map_err(unreachable)?.is_file();
    let mut bytes = Vec::new();
    if !is_file || file.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(unreachable)? as u64 > MAX_BYTES {
        return Err(Answered::InvalidValue(format!("no file of at most {MAX_BYTES} bytes")));
    }
    let key = DatabaseKey::new().with_password(password.expose_secret());
    Database::parse(&bytes, key).map_err(|error| match error {
        // In the older format a wrong password is seen by what it decrypts to.
        DatabaseOpenError::Key(_) | DatabaseOpenError::Cryptography(_) => Answered::Refused,
        _ => Answered::InvalidValue("no KeePass database that can be read".to_owned()),
    })
}
