//! Wires extensions: their rows, their bytes in the blob store, their source for browsers and the web store.

use std::path::Path;
use std::sync::Arc;

use casement_blobs::Inspector;
use casement_chromium::Engine;
use casement_domain::blob::BlobStore;
use casement_domain::extension::{ExtensionDeps, ExtensionFiles, ExtensionRepository, ExtensionSource, Extensions};
use casement_domain::session::{Connections, Sessions};

use crate::system::System;
use crate::web_store::ChromeWebStore;

/// Returns the source of extensions for browsers that start.
pub(crate) fn source(rows: Arc<dyn ExtensionRepository>, blobs: Arc<dyn BlobStore>) -> Arc<dyn ExtensionSource> {
    Arc::new(ExtensionFiles::new(rows, blobs, Arc::new(System)))
}

/// Returns the use cases.
pub(crate) fn use_cases(
    rows: Arc<dyn ExtensionRepository>,
    blobs: Arc<dyn BlobStore>,
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
        operations: sessions.operations(),
        clock: Arc::new(System),
        ids: Arc::new(System),
        max,
    })
}
