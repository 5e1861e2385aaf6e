//! `cargo xtask chaos`: random faults of several servers for as long as wanted.

use anyhow::Result;

use crate::test;

#[derive(clap::Args)]
pub(crate) struct Options {
    /// The time of the faults
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..=1440))]
    minutes: u32,
    /// The number that decides the faults; the same number causes the same faults
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let variables = vec![
        ("CASEMENT_TEST_CHAOS_MINUTES", options.minutes.to_string()),
        ("CASEMENT_TEST_CHAOS_SEED", options.seed.to_string()),
    ];
    let tests = test::Options::of("casement", &["nodes_faults::random_faults"]);
    test::run_recording(&tests.shown_with(variables), None)
}
