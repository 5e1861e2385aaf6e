//! `casement secrets`: the master key of this installation.

use std::io::Write as _;
use std::sync::Arc;

use casement_domain::Clock as _;
use casement_domain::proxy::{Proxies, ProxyRepository as _};
use casement_domain::sealing::{KeyId, Sealer as _};
use casement_egress::{Egress, Limits, Rules, SystemResolver};
use casement_postgres::PgProxies;

use crate::proxies::{self, Dialer};
use crate::sealing::MasterKeys;
use crate::settings::SecretsCommand;
use crate::store::Store;
use crate::system::System;

/// Runs the command. A server may run meanwhile: it learns of the new key by itself.
pub(crate) async fn run(command: SecretsCommand) -> anyhow::Result<()> {
    let SecretsCommand::Rotate { store, master_key } = command;
    let beside = Store::open_for(&store).await?;
    let done = async {
        let keys = MasterKeys::open(&store.data_dir.path()?, master_key.as_ref())?;
        let rows = Arc::new(PgProxies::new(beside.store.database.clone()));
        // Nothing is dialled by this command.
        let egress = Egress::new(Rules::default(), Arc::new(SystemResolver::default()), Limits::default());
        let secrets = proxies::use_cases(rows.clone(), &keys, Dialer { egress, address_url: None });
        rotate(&keys, &secrets, async || Ok(rows.keys().await?)).await
    };
    let done = done.await;
    beside.close().await?;
    done
}

async fn rotate(
    keys: &MasterKeys,
    proxies: &Proxies,
    used: impl AsyncFn() -> anyhow::Result<Vec<KeyId>>,
) -> anyhow::Result<()> {
    let added = keys.add(System.now())?;
    let resealed = proxies.reseal().await?;
    let kept = keys.forget(&used().await?, System.now())?;
    let mut out = std::io::stdout().lock();
    let current = keys.current()?;
    if added {
        writeln!(out, "sealing under a new key, {current}")?;
    } else {
        writeln!(out, "sealing under the first key of CASEMENT_MASTER_KEY, {current}")?;
    }
    writeln!(out, "sealed anew: {resealed}")?;
    if kept > 0 {
        writeln!(
            out,
            "older keys kept: {kept}; the next rotation forgets those replaced an hour before that seal nothing"
        )?;
    }
    Ok(())
}
