//! The files that clients have uploaded to the machines of remote browsers.
//!
//! Nobody can look whether a path exists there, and the files of that machine are not the client's. So commands of CDP
//! and BiDi may name the uploaded files only.

use std::{collections::VecDeque, sync::Arc};

use async_trait::async_trait;
use casement_domain::SessionId;
use parking_lot::Mutex;

use crate::relay::{FilesLocation, SessionFiles};

/// The maximum number of known files of all sessions. The oldest are forgotten, and must be uploaded again.
const MAX_FILES: usize = 4096;
/// The maximum length of a path, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// The known files, the oldest first. Clones share one registry.
#[derive(Clone, Default)]
pub(crate) struct RemoteUploads(Arc<Mutex<VecDeque<(SessionId, String)>>>);

impl RemoteUploads {
    /// Adds the path of an uploaded file.
    pub(crate) fn add(&self, session: SessionId, path: String) {
        if path.len() > MAX_PATH_BYTES {
            return;
        }
        let mut known = self.0.lock();
        if known.len() >= MAX_FILES {
            known.pop_front();
        }
        known.push_back((session, path));
    }

    /// Returns the files of one session.
    pub(crate) fn of(&self, session: SessionId) -> UploadsOfSession {
        UploadsOfSession { uploads: self.clone(), session }
    }
}

/// The uploaded files of one session.
pub(crate) struct UploadsOfSession {
    uploads: RemoteUploads,
    session: SessionId,
}

#[async_trait]
impl SessionFiles for UploadsOfSession {
    async fn first_missing(&self, paths: Vec<String>) -> Option<String> {
        let known = self.uploads.0.lock();
        let is_known = |path: &str| known.iter().any(|(session, known)| *session == self.session && known == path);
        // Chromium reads an empty path as no file.
        paths.into_iter().find(|path| !path.is_empty() && !is_known(path))
    }

    fn location(&self) -> FilesLocation {
        FilesLocation::Remote
    }
}

#[cfg(test)]
mod tests {
    use casement_domain::testing::session_id;

    use super::*;

    #[tokio::test]
    async fn only_the_uploaded_files_of_the_same_session_are_known() {
        let uploads = RemoteUploads::default();
        uploads.add(session_id(1), "/tmp/a".to_owned());
        let missing = |session, paths: &[&str]| {
            let paths = paths.iter().map(|path| (*path).to_owned()).collect();
            let files = uploads.of(session_id(session));
            async move { files.first_missing(paths).await }
        };
        assert_eq!(missing(1, &["/tmp/a", ""]).await, None);
        assert_eq!(missing(1, &["/tmp/a", "/etc/passwd"]).await.as_deref(), Some("/etc/passwd"));
        assert_eq!(missing(2, &["/tmp/a"]).await.as_deref(), Some("/tmp/a"));
    }

    #[tokio::test]
    async fn only_so_many_files_are_known() {
        let uploads = RemoteUploads::default();
        for at in 0..=MAX_FILES {
            uploads.add(session_id(1), at.to_string());
        }
        assert_eq!(uploads.of(session_id(1)).first_missing(vec!["1".to_owned()]).await, None);
        assert!(uploads.of(session_id(1)).first_missing(vec!["0".to_owned()]).await.is_some());
    }
}
