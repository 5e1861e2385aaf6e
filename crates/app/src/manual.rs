//! `casement man`: the manual pages, which packages install.

use std::fs::File;
use std::io::Write;
use std::path::Path;

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

/// Writes the manual pages of the program, of its commands and of their verbs to a folder, which exists.
///
/// # Errors
/// If a page cannot be written.
pub(crate) fn write_all(folder: &Path) -> anyhow::Result<()> {
    let mut commands = settings::commands(None)?;
    commands.build();
    write_below(&commands, folder)
}

fn write_below(command: &clap::Command, folder: &Path) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned();
    let page = folder.join(format!("{name}.1"));
    let mut file = File::create(&page).with_context(|| format!("cannot write {}", page.display()))?;
    Man::new(command.clone()).source(concat!("casement ", env!("CARGO_PKG_VERSION"))).render(&mut file)?;
    let is_for_people = |below: &&clap::Command| !below.is_hide_set() && below.get_name() != "help";
    command.get_subcommands().filter(is_for_people).try_for_each(|below| write_below(below, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_every_verb_has_a_page() {
        let folder = tempfile::tempdir().expect("a folder");
        write_all(folder.path()).expect("pages");
        for page in
            ["casement", "casement-serve", "casement-sessions", "casement-sessions-exec", "casement-keys-create"]
        {
            assert!(folder.path().join(format!("{page}.1")).exists(), "{page}");
        }
        for hidden in ["casement-agent", "casement-keepass", "casement-help"] {
            assert!(!folder.path().join(format!("{hidden}.1")).exists(), "{hidden}");
        }
    }

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
