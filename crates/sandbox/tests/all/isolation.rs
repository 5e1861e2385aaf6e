//! What a program in a sandbox can see, reach and do.

use crate::support::Place;

#[tokio::test]
async fn a_program_runs_and_its_output_can_be_read() -> anyhow::Result<()> {
    let place = Place::new()?;
    assert_eq!(place.output("hello", "echo hello; exit 3").await?, "hello\n");
    Ok(())
}
