//! A writer of log lines that masks secrets of this service, whatever line they got into.

use std::io::{self, Write};

use casement_domain::mask_secrets;
use tracing_subscriber::fmt::MakeWriter;

/// Creates writers that mask what they pass on.
pub(crate) struct Masked<W>(pub(crate) W);

impl<'a, W: MakeWriter<'a>> MakeWriter<'a> for Masked<W> {
    type Writer = Masked<W::Writer>;

    fn make_writer(&'a self) -> Self::Writer {
        Masked(self.0.make_writer())
    }
}

/// The subscriber writes each line at once, so that no secret is divided.
impl<W: Write> Write for Masked<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(mask_secrets(&String::from_utf8_lossy(line)).as_bytes())?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_written_without_its_secrets() {
        let mut written = Vec::new();
        let line =
            "path=/connect/csk_01arz3ndektsv4rrffq69g5fav_q83vEjRWeJq83vEjRWeJq83vEjRWeJq83vEjRWeJq80 status=404\n";
        Masked(&mut written).write_all(line.as_bytes()).expect("a line");
        assert_eq!(String::from_utf8_lossy(&written), "path=/connect/csk_01arz3ndektsv4rrffq69g5fav_… status=404\n");
    }
}
