//! Wires logins: their use cases, and screenshots of pages that were not understood.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use casement_domain::AuthFlowId;
use casement_domain::auth_connection::FlowPictures;
use tracing::warn;

use crate::data_dir::write_whole;

/// The maximum number of stored screenshots; older ones are deleted.
const MAX_SCREENSHOTS: usize = 100;

/// Stores screenshots of pages in the data directory, for the operator only.
pub(crate) struct FlowPictureFiles(PathBuf);

impl FlowPictureFiles {
    /// Stores them in a folder of the data directory.
    pub(crate) fn new(data_dir: &Path) -> Self {
        Self(data_dir.join("login-pages"))
    }

    fn write(&self, flow: AuthFlowId, png: &[u8]) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt as _;
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.0)?;
        let path = self.0.join(format!("{flow}.png"));
        write_whole(&path, png)?;
        // The names are ids of flows, which sort by age.
        let mut screenshots: Vec<PathBuf> =
            std::fs::read_dir(&self.0)?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        screenshots.sort_unstable();
        for old in screenshots.iter().take(screenshots.len().saturating_sub(MAX_SCREENSHOTS)) {
            std::fs::remove_file(old)?;
        }
        Ok(path)
    }
}

#[async_trait]
impl FlowPictures for FlowPictureFiles {
    async fn keep(&self, flow: AuthFlowId, png: Vec<u8>) {
        let here = Self(self.0.clone());
        let written = tokio::task::spawn_blocking(move || here.write(flow, &png)).await;
        match written {
            Ok(Ok(path)) => {
                warn!(%flow, picture = %path.display(), "a login page was not understood; stored a screenshot")
            }
            Ok(Err(error)) => warn!(%flow, %error, "cannot store the screenshot of a login page"),
            Err(error) => warn!(%flow, %error, "cannot store the screenshot of a login page"),
        }
    }
}

/// Returns the storage of screenshots.
pub(crate) fn pictures(data_dir: &Path) -> Arc<dyn FlowPictures> {
    Arc::new(FlowPictureFiles::new(data_dir))
}
