//! Wires extensions: their rows, their bytes in the data directory, their source for browsers and the web store.

use std::path::Path;
use std::sync::Arc;

use casement_blobs::{Inspector, LocalBlobs};
use casement_chromium::Engine;
use casement_domain::extension::{ExtensionDeps, ExtensionFiles, ExtensionRepository, ExtensionSource, Extensions};
use casement_domain::session::{Connections, Sessions};

use crate::system::System;
use crate::web_store::ChromeWebStore;

/// The folder of the blobs in the data directory.
const BLOBS: &str = "blobs";

/// Returns the blob store of this node.
pub(crate) fn blobs(data_dir: &Path) -> anyhow::Result<Arc<LocalBlobs>> {
    Ok(Arc::new(LocalBlobs::open(&data_dir.join(BLOBS))?))
}

/// Returns the source of extensions for browsers that start.
pub(crate) fn source(rows: Arc<dyn ExtensionRepository>, blobs: Arc<LocalBlobs>) -> Arc<dyn ExtensionSource> {
    Arc::new(ExtensionFiles::new(rows, blobs, Arc::new(System)))
}

/// Returns the use cases.
pub(crate) fn use_cases(
    rows: Arc<dyn ExtensionRepository>,
    blobs: Arc<LocalBlobs>,
    data_dir: &Path,
    engine: &Engine,
    sessions: &Sessions,
    connections: Arc<dyn Connections>,
    (web_store, max): (ChromeWebStore, u32),
) -> Extensions {
    Extensions::new(ExtensionDeps {
        extensions: rows,
        blobs,
        archives: Arc::new(Inspector::new(data_dir.to_owned())),
        machine: Arc::new(engine.clone()),
        web_store: Arc::new(web_store),
        connections,
        activity: sessions.activity().clone(),
        clock: Arc::new(System),
        ids: Arc::new(System),
        max,
    })
}
