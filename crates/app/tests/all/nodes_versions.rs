//! Tests of an upgrade of several nodes, one after the other, while they are used.

use std::path::PathBuf;

use super::nodes_faults::{SOME, assert_consistent, loaded, until_leased};

/// The variable with the path of an older version of the program; without it, the nodes only restart.
const OLDER: &str = "CASEMENT_TEST_OLDER_PROGRAM";

#[test]
fn nodes_are_replaced_by_a_new_version_one_by_one_under_load() -> anyhow::Result<()> {
    let older = std::env::var_os(OLDER).map(PathBuf::from);
    let (mut cluster, load) = loaded(older.as_deref())?;
    until_leased(&load, SOME)?;

    for node in 0..cluster.nodes().len() {
        cluster.node(node).stop()?;
        cluster.node(node).set_program(None);
        cluster.node(node).restart()?;
        cluster.until_balanced(3)?;
        until_leased(&load, SOME)?;
    }

    assert_consistent(&mut cluster, load, "replaced")?;
    let lost = "select count(*) from sessions where end_reason in ('node_lost', 'crashed')";
    assert_eq!(cluster.sql(lost)?, "0", "sessions go on while their node restarts");
    Ok(())
}
