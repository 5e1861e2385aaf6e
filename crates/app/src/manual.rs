//! `casement man`: the manual pages, which packages install.

use std::io::Write;

use anyhow::Context as _;
use clap_mangen::Man;

use crate::settings;

/// Writes the manual page of the program, or of the command with this name.
///
/// # Errors
/// If there is no such command, or the page cannot be written.
pub(crate) fn write(name: Option<&str>, page: &mut impl Write) -> anyhow::Result<()> {
    let mut commands = settings::commands(None)?;
    // Gives the commands their full names, such as `casement serve`.
    commands.build();
    let command = match name {
        Some(name) => commands.find_subcommand(name).with_context(|| format!("there is no command {name}"))?.clone(),
        None => commands,
    };
    Ok(Man::new(command).source(concat!("casement ", env!("CARGO_PKG_VERSION"))).render(page)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(name: Option<&str>) -> String {
        let mut page = Vec::new();
        write(name, &mut page).expect("there is such a page");
        String::from_utf8(page).expect("a page is text")
    }

    #[test]
    fn the_page_of_the_program_lists_the_commands_for_people() {
        let page = page(None);
        assert!(page.contains("serve") && page.contains("doctor"), "{page}");
        assert!(!page.contains("keepass"), "{page}");
    }

    #[test]
    fn the_page_of_a_command_describes_its_flags() {
        let page = page(Some("serve"));
        assert!(page.contains("casement\\-serve \\- Run the server"), "{page}");
        assert!(page.contains("CASEMENT_LISTEN"), "{page}");
        assert!(write(Some("fly"), &mut Vec::new()).is_err());
    }
}
