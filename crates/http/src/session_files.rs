//! The files of a session, for the relays of its connections.

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use casement_domain::{fs::Files, session::Session, session_operation::OperationError, untrusted_json};

use crate::relay::{SessionFiles, directory_of_classic};

/// The maximum time for which a command of a client waits for the look at its paths.
const LOOK_TIMEOUT: Duration = Duration::from_secs(5);

/// The ends of the paths of chromedriver's commands with a command of CDP in their body.
const CDP_COMMANDS: [&str; 3] = ["/cdp/execute", "/chromium/send_command", "/chromium/send_command_and_get_result"];

/// The files of one session.
pub(crate) struct FilesOfSession {
    files: Files,
    session: Session,
}

impl FilesOfSession {
    pub(crate) fn new(files: Files, session: Session) -> Self {
        Self { files, session }
    }

    /// Returns whether nothing is at `path`, or nothing that the browser can reach. A relative path, also one of
    /// Windows, leads nowhere.
    async fn is_missing(&self, path: &str) -> bool {
        use OperationError::{Forbidden, Invalid, Missing};
        let looked = self.files.info(&self.session, Some(path.to_owned())).await;
        matches!(looked, Err(Missing(_) | Invalid(_) | Forbidden(_)))
    }
}

#[async_trait]
impl SessionFiles for FilesOfSession {
    async fn first_missing(&self, paths: Vec<String>) -> Option<String> {
        let look = async {
            for path in paths {
                // Chromium reads an empty path as no file.
                if !path.is_empty() && self.is_missing(&path).await {
                    return Some(path);
                }
            }
            None
        };
        tokio::time::timeout(LOOK_TIMEOUT, look).await.unwrap_or_default()
    }
}

/// Returns the body of a command of classic WebDriver. If it is a command of CDP with a download directory that the
/// session does not have, the directory is that of the session.
pub(crate) async fn with_existing_directory(files: &Files, session: &Session, tail: &str, body: Bytes) -> Bytes {
    if !CDP_COMMANDS.iter().any(|command| tail.ends_with(command)) {
        return body;
    }
    let named = untrusted_json::parse(&body).ok().and_then(directory_of_classic);
    let Some((path, replacement)) = named else { return body };
    match FilesOfSession::new(files.clone(), session.clone()).first_missing(vec![path]).await {
        Some(_) => replacement.into(),
        None => body,
    }
}
