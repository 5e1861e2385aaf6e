//! Deletes stored bytes of extensions without a row; a killed server can leave them.

use std::time::Duration;

use async_trait::async_trait;
use casement_domain::extension::Extensions;
use tokio_util::sync::CancellationToken;

use super::Job;

pub(crate) struct ExtensionCleanup {
    pub(crate) extensions: Extensions,
}

#[async_trait]
impl Job for ExtensionCleanup {
    fn name(&self) -> &'static str {
        "extension cleanup"
    }

    fn interval(&self) -> Duration {
        Duration::from_secs(3600)
    }

    async fn run(&mut self, _stop: &CancellationToken) -> anyhow::Result<()> {
        Ok(self.extensions.clear_orphans().await?)
    }
}
