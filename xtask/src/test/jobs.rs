//! Which tests run, in which processes, and which of these start first.

use anyhow::{Result, ensure};

use super::programs::Program;

/// The packages whose tests take longest, longest first. The others take less than half a minute each.
const LONGEST_PACKAGES: &[&str] = &[
    "casement",
    "casement-agent",
    "casement-runner",
    "casement-webdriver",
    "casement-chromium",
    "casement-blobs",
    "casement-postgres",
    "casement-http",
    "casement-sandbox",
];

/// Tests that one process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) program: Program,
    /// What a person calls it.
    pub(super) title: String,
    pub(super) names: Vec<String>,
    /// These are all tests of the program.
    pub(super) is_whole: bool,
}

/// Which tests are wanted.
pub(super) struct Wanted<'a> {
    /// Parts of the names, of which a test has one. If there are none, all tests are wanted.
    pub(super) parts: &'a [String],
    /// Parts of the names of tests that are not wanted.
    pub(super) skipped: &'a [String],
    /// Tests that a process of their own runs from the start, because the others of their program take less time.
    pub(super) longest: &'a [String],
}

impl Wanted<'_> {
    /// Returns the jobs with the wanted ones of these tests, longest first.
    ///
    /// # Errors
    /// If no test is wanted, or one of the parts is in no name.
    pub(super) fn jobs(&self, programs: Vec<(Program, Vec<String>)>) -> Result<Vec<Job>> {
        let count: usize = programs.iter().map(|(_, names)| names.len()).sum();
        let is_in_a_name = |part: &str| programs.iter().flat_map(|(_, names)| names).any(|name| name.contains(part));
        let missing: Vec<&str> = self.parts.iter().map(String::as_str).filter(|part| !is_in_a_name(part)).collect();
        ensure!(missing.is_empty(), "no name of the {count} tests contains: {}", missing.join(" "));
        let mut jobs: Vec<Job> =
            programs.into_iter().flat_map(|(program, names)| self.of_program(program, names)).collect();
        ensure!(!jobs.is_empty(), "none of the {count} tests is wanted");
        jobs.sort_by_key(|job| rank(&job.program.package));
        Ok(jobs)
    }

    fn of_program(&self, program: Program, names: Vec<String>) -> Vec<Job> {
        let count = names.len();
        let wanted: Vec<String> = names.into_iter().filter(|name| self.contains(name)).collect();
        let is_long = |name: &String| program.package == "casement" && self.longest.contains(name);
        let (long, others): (Vec<String>, Vec<String>) = wanted.into_iter().partition(is_long);
        let job = |title: String, names: Vec<String>| Job {
            program: program.clone(),
            title,
            is_whole: names.len() == count,
            names,
        };
        let jobs = [job(program.title(), others), job(format!("{}, longest", program.title()), long)];
        jobs.into_iter().filter(|job| !job.names.is_empty()).collect()
    }

    fn contains(&self, name: &str) -> bool {
        let has = |parts: &[String]| parts.iter().any(|part| name.contains(part.as_str()));
        (self.parts.is_empty() || has(self.parts)) && !has(self.skipped)
    }
}

fn rank(package: &str) -> usize {
    LONGEST_PACKAGES.iter().position(|name| *name == package).unwrap_or(LONGEST_PACKAGES.len())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::workspace;

    #[test]
    fn the_packages_that_start_first_exist() {
        let members = workspace::packages().expect("cargo answers");
        for name in LONGEST_PACKAGES {
            assert!(members.iter().any(|member| member.name == *name), "there is no package {name}");
        }
    }

    fn program(package: &str) -> Program {
        Program {
            package: package.to_owned(),
            source: "tests/all.rs".to_owned(),
            folder: PathBuf::from("/crates"),
            executable: PathBuf::from("/target/all"),
        }
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    fn programs() -> Vec<(Program, Vec<String>)> {
        vec![
            (program("casement-blobs"), texts(&["all::put", "all::get"])),
            (program("casement"), texts(&["all::pools::fill", "all::pools::fill_again", "all::put"])),
        ]
    }

    /// Returns the title and tests of each job, and whether it is a whole program.
    fn chosen(parts: &[&str], skipped: &[&str], longest: &[&str]) -> Result<Vec<(String, Vec<String>, bool)>> {
        let (parts, skipped, longest) = (texts(parts), texts(skipped), texts(longest));
        let jobs = Wanted { parts: &parts, skipped: &skipped, longest: &longest }.jobs(programs())?;
        Ok(jobs.into_iter().map(|job| (job.title, job.names, job.is_whole)).collect())
    }

    #[test]
    fn the_longest_program_is_first_and_its_longest_tests_have_a_process() {
        let expected = [
            ("casement tests/all.rs".to_owned(), texts(&["all::pools::fill_again", "all::put"]), false),
            ("casement tests/all.rs, longest".to_owned(), texts(&["all::pools::fill"]), false),
            ("casement-blobs tests/all.rs".to_owned(), texts(&["all::put", "all::get"]), true),
        ];
        assert_eq!(chosen(&[], &[], &["all::pools::fill"]).expect("jobs"), expected);
    }

    #[test]
    fn a_test_runs_if_its_name_has_a_part_and_nothing_that_is_skipped() {
        let expected = [
            ("casement tests/all.rs".to_owned(), texts(&["all::put"]), false),
            ("casement-blobs tests/all.rs".to_owned(), texts(&["all::put", "all::get"]), true),
        ];
        assert_eq!(chosen(&["put", "get", "fill"], &["::fill"], &[]).expect("jobs"), expected);
    }

    #[test]
    fn a_filter_that_no_test_matches_is_an_error() {
        let error = chosen(&["put", "nothing", "none"], &[], &[]).expect_err("it matches nothing").to_string();
        assert_eq!(error, "no name of the 5 tests contains: nothing none");
        let error = chosen(&["put"], &["put"], &[]).expect_err("nothing is left").to_string();
        assert_eq!(error, "none of the 5 tests is wanted");
    }
}
