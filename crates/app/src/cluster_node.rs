//! This node among the nodes of its database: the cluster listener, and the key by which other nodes recognize it.

use std::net::TcpListener;

use anyhow::{Context as _, bail};
use casement_domain::node::ClusterEndpoint;
use casement_http::NodeIdentity;
use rcgen::{CertificateParams, KeyPair};

use crate::data_dir::DataDir;
use crate::settings::ClusterSettings;

/// The name in certificates of nodes. Other nodes check the key alone.
const NAME: &str = "casement-node";

/// The listener for other nodes.
pub(crate) struct ClusterListener {
    pub(crate) listener: TcpListener,
    pub(crate) identity: NodeIdentity,
    /// How other nodes reach it.
    pub(crate) endpoint: ClusterEndpoint,
}

impl ClusterListener {
    /// Opens the listener; `None` if the settings name none.
    ///
    /// # Errors
    /// If the address is taken, cannot be reached by other nodes, or the key cannot be read or created.
    pub(crate) fn open(settings: &ClusterSettings, data_dir: &DataDir) -> anyhow::Result<Option<Self>> {
        let Some(listen) = settings.cluster_listen else {
            if settings.cluster_address.is_some() {
                bail!("--cluster-address: there is no --cluster-listen");
            }
            return Ok(None);
        };
        let listener =
            TcpListener::bind(listen).with_context(|| format!("--cluster-listen: cannot listen on {listen}"))?;
        let local = listener.local_addr()?;
        let address = match &settings.cluster_address {
            Some(address) => address.clone(),
            None if local.ip().is_unspecified() => {
                bail!("--cluster-address: is required, because other nodes cannot connect to {local}");
            }
            None => local.to_string(),
        };
        let pem = data_dir.node_identity(new_identity)?;
        let identity =
            NodeIdentity::new(&pem, &pem).context("the key of this node in the data directory is damaged")?;
        let endpoint = ClusterEndpoint { address, fingerprint: identity.fingerprint() };
        Ok(Some(Self { listener, identity, endpoint }))
    }
}

/// Returns a new self-signed certificate and its key in PEM form.
fn new_identity() -> anyhow::Result<Vec<u8>> {
    let key = KeyPair::generate()?;
    let certificate = CertificateParams::new(vec![NAME.to_owned()])?.self_signed(&key)?;
    Ok([certificate.pem(), key.serialize_pem()].concat().into_bytes())
}
