//! The engines that run jobs, and the file that each of them reads.
// SPDX-License-Identifier: MIT OR Apache-2.0

use clap::ValueEnum;
use serde_json::json;
use std::path::Path;

/// How often a job that asks for it is tried again.
const RETRIES: u32 = 3;

/// What runs jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    /// Slurm: a job array
    Slurm,
    /// GNU parallel: here, or on machines that ssh reaches
    Parallel,
    /// Snakemake: a workflow whose outputs are the results
    Snakemake,
    /// HyperQueue: a server and workers, from its Python package
    Hyperqueue,
    /// Grid Engine: only writes the file for qsub
    Sge,
    /// HTCondor: only writes the file for condor_submit
    Htcondor,
    /// Kubernetes: only writes the manifest of an indexed job
    Kubernetes,
    /// A board, for jobs that were made with --machine hardware: its U-Boot fetches one image after
    /// the other by TFTP
    Board,
}

/// The values for the placeholders in engines' files.
#[derive(Clone, Copy, Debug)]
pub struct Filling<'a> {
    /// The program that runs a job.
    pub program: &'a Path,
    /// The directory of the jobs.
    pub directory: &'a Path,
    /// How many jobs there are.
    pub jobs: usize,
    /// Number of jobs that a task of the engine runs, one after the other.
    pub chunk: usize,
    /// Time in seconds after which a boot counts as hung.
    pub limit_s: u64,
}

impl Engine {
    /// Returns the name of its file, and the template for that; none for a board.
    const fn template(self) -> Option<(&'static str, &'static str)> {
        Some(match self {
            Self::Slurm => ("slurm.sh", include_str!("templates/slurm.sh")),
            Self::Parallel => ("parallel.sh", include_str!("templates/parallel.sh")),
            Self::Snakemake => ("Snakefile", include_str!("templates/Snakefile")),
            Self::Hyperqueue => ("hq.py", include_str!("templates/hq.py")),
            Self::Sge => ("sge.sh", include_str!("templates/sge.sh")),
            Self::Htcondor => ("htcondor.sub", include_str!("templates/htcondor.sub")),
            Self::Kubernetes => ("kubernetes.yaml", include_str!("templates/kubernetes.yaml")),
            Self::Board => return None,
        })
    }

    /// Returns the name of its file, and the file's text; none for a board, which reads no file.
    pub fn file(self, filling: &Filling<'_>) -> Option<(&'static str, String)> {
        let (name, template) = self.template()?;
        Some((name, filling.fill(template)))
    }

    /// Returns whether one of its tasks can run several jobs, which is useful where starting a task
    /// takes longer than a job.
    pub const fn takes_chunks(self) -> bool {
        matches!(self, Self::Slurm | Self::Sge)
    }

    /// Returns the command that hands its file to it, and the source of that command; `None` if
    /// only the file is written.
    pub const fn command(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Slurm => Some(("sbatch", "Debian's packages slurm-wlm and munge")),
            Self::Parallel => Some(("parallel", "Debian's package parallel")),
            Self::Snakemake => Some((
                "snakemake",
                "pip install snakemake, in a virtual environment",
            )),
            Self::Hyperqueue => Some(("python3", "Debian's package python3")),
            Self::Sge | Self::Htcondor | Self::Kubernetes | Self::Board => None,
        }
    }
}

impl Filling<'_> {
    fn fill(&self, template: &str) -> String {
        let (program, directory) = (
            self.program.display().to_string(),
            self.directory.display().to_string(),
        );
        // Every boot may take its limit; starting and ending it takes less than a minute.
        let minutes = ((self.limit_s.div_ceil(60) + 1) * self.chunk as u64).to_string();
        let values = [
            // It has other words to fill in, so it comes first.
            (
                "{{chunk_of_task}}",
                include_str!("templates/chunk.sh").trim_end().to_owned(),
            ),
            ("{{program}}", quoted(&program)),
            ("{{directory}}", quoted(&directory)),
            // Parallel passes what it is given to a shell once more.
            ("{{quoted_program}}", quoted(&quoted(&program))),
            ("{{quoted_directory}}", quoted(&quoted(&directory))),
            ("{{python_program}}", json!(program).to_string()),
            ("{{python_directory}}", json!(directory).to_string()),
            // Within double quotes, HTCondor reads single ones, doubled where they are meant, and
            // doubled double ones.
            (
                "{{condor_directory}}",
                format!("'{}'", directory.replace('\'', "''").replace('"', "\"\"")),
            ),
            ("{{plain_program}}", program),
            ("{{plain_directory}}", directory),
            ("{{jobs}}", self.jobs.to_string()),
            ("{{tasks}}", self.jobs.div_ceil(self.chunk).to_string()),
            ("{{chunk}}", self.chunk.to_string()),
            ("{{retries}}", RETRIES.to_string()),
            ("{{minutes}}", minutes),
        ];
        values
            .iter()
            .fold(template.to_owned(), |text, (name, value)| {
                text.replace(name, value)
            })
    }
}

/// Returns a word for a shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::{Command, Output};

    /// A directory whose name no shell may take apart, with a program that writes down how it was
    /// called, and ends with the code in `code`.
    struct Lab {
        scratch: tempfile::TempDir,
        program: PathBuf,
    }

    impl Lab {
        fn new() -> Self {
            let scratch = tempfile::Builder::new()
                .prefix("it's a $HOME ")
                .tempdir()
                .expect("a directory");
            let program = scratch.path().join("a program");
            let text = "#!/bin/sh\nhere=$(dirname \"$0\")\nprintf '%s|' \"$@\" >> \"$here/calls\"\n\
                echo >> \"$here/calls\"\nexit $(cat \"$here/code\")\n";
            fs::write(&program, text).expect("a program");
            fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("rights");
            fs::create_dir(scratch.path().join("submit")).expect("a directory");
            let lab = Self { scratch, program };
            lab.ends_with(0);
            lab
        }

        fn ends_with(&self, code: u8) {
            fs::write(self.scratch.path().join("code"), code.to_string()).expect("a file");
        }

        fn text(&self, engine: Engine) -> String {
            self.chunked(engine, 1)
        }

        fn chunked(&self, engine: Engine, chunk: usize) -> String {
            let directory = self.scratch.path();
            let filling = Filling {
                program: &self.program,
                directory,
                jobs: 12,
                chunk,
                limit_s: 300,
            };
            let (name, text) = engine.file(&filling).expect("it reads a file");
            assert!(!text.contains("{{"), "{name} has something to fill in");
            text
        }

        /// Runs a shell script of an engine. Returns its output, and how it called the program.
        fn run(&self, engine: Engine, variables: &[(&str, &str)]) -> (Output, String) {
            self.run_text(&self.text(engine), variables)
        }

        fn run_text(&self, text: &str, variables: &[(&str, &str)]) -> (Output, String) {
            let script = self.scratch.path().join("submit/script");
            fs::write(&script, text).expect("a script");
            let _ = fs::remove_file(self.scratch.path().join("calls"));
            let path = format!(
                "{}:{}",
                self.scratch.path().display(),
                std::env::var("PATH").unwrap_or_default()
            );
            let mut command = Command::new("sh");
            command
                .arg(&script)
                .envs(variables.iter().copied())
                .env("PATH", path)
                .env_remove("SLURM_RESTART_COUNT");
            let output = command.output().expect("a shell");
            (
                output,
                fs::read_to_string(self.scratch.path().join("calls")).unwrap_or_default(),
            )
        }

        fn call(&self, number: &str) -> String {
            format!("job|run|{}|{number}|\n", self.scratch.path().display())
        }
    }

    #[test]
    fn grid_engine_runs_the_job_of_its_index_and_is_told_to_try_again() {
        let lab = Lab::new();
        let (output, calls) = lab.run(Engine::Sge, &[("SGE_TASK_ID", "7")]);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(calls, lab.call("7"));
        for (code, expected) in [(75, 99), (1, 1)] {
            lab.ends_with(code);
            let (output, _) = lab.run(Engine::Sge, &[("SGE_TASK_ID", "7")]);
            assert_eq!(output.status.code(), Some(expected));
        }
        let text = lab.text(Engine::Sge);
        assert!(
            text.contains("\n#$ -t 1-12\n") && text.contains("h_rt=0:6:0"),
            "{text}"
        );
    }

    #[test]
    fn slurm_runs_the_job_of_its_index_and_requeues_it() {
        let lab = Lab::new();
        let array = [
            ("SLURM_ARRAY_TASK_ID", "7"),
            ("SLURM_ARRAY_JOB_ID", "40"),
            ("CLOISON_OFFSET", "5"),
        ];
        let (output, calls) = lab.run(Engine::Slurm, &array);
        assert!(output.status.success(), "{output:?}");
        assert_eq!(calls, lab.call("12"));
        // Slurm's own program is this one, which notes the request.
        fs::copy(&lab.program, lab.scratch.path().join("scontrol")).expect("a program");
        lab.ends_with(75);
        let (output, calls) = lab.run(Engine::Slurm, &array);
        assert_eq!(output.status.code(), Some(75));
        assert_eq!(calls, lab.call("12") + "requeue|40_7|\n");
        lab.ends_with(1);
        let (output, calls) = lab.run(Engine::Slurm, &array);
        assert_eq!((output.status.code(), calls), (Some(1), lab.call("12")));
    }

    #[test]
    fn a_task_of_several_jobs_runs_them_all_and_asks_for_another_attempt_if_one_does() {
        let lab = Lab::new();
        let calls_of = |numbers: &[&str]| {
            numbers
                .iter()
                .map(|number| lab.call(number))
                .collect::<String>()
        };
        let text = lab.chunked(Engine::Slurm, 5);
        assert!(text.contains("--time=30\n"), "{text}");
        let array = [("SLURM_ARRAY_TASK_ID", "3"), ("SLURM_ARRAY_JOB_ID", "40")];
        // The last one is shorter.
        let (output, calls) = lab.run_text(&text, &array);
        assert_eq!(
            (output.status.code(), calls),
            (Some(0), calls_of(&["11", "12"]))
        );
        // The others run even if one job fails.
        let program = fs::read_to_string(&lab.program).expect("the program");
        let fails = |of: &str| {
            let text = program.replace("exit $(cat", &format!("case $4 in {of} esac\nexit $(cat"));
            fs::write(&lab.program, text).expect("a program");
        };
        fails("6) exit 1;; 7) exit 75;; 8) exit 2;;");
        let sge = lab.chunked(Engine::Sge, 5);
        assert!(sge.contains("\n#$ -t 1-3\n"), "{sge}");
        let (output, calls) = lab.run_text(&sge, &[("SGE_TASK_ID", "2")]);
        assert_eq!(
            (output.status.code(), calls),
            (Some(99), calls_of(&["6", "7", "8", "9", "10"]))
        );
        fails("6) exit 3;; 8) exit 2;;");
        let (output, _) = lab.run_text(&sge, &[("SGE_TASK_ID", "2")]);
        assert_eq!(output.status.code(), Some(3));
    }

    #[test]
    fn condor_counts_from_zero_and_tries_again_only_where_asked() {
        let text = Lab::new().text(Engine::Htcondor);
        let fields: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| line.split_once('='))
            .map(|(a, b)| (a.trim(), b.trim()))
            .collect();
        let of = |name: &str| {
            fields
                .iter()
                .find(|(field, _)| *field == name)
                .map(|(_, value)| *value)
        };
        assert_eq!(of("number"), Some("$(Process) + 1"));
        let arguments = of("arguments").expect("arguments");
        assert!(
            arguments.starts_with("\"job run '") && arguments.ends_with("' $INT(number)\""),
            "{arguments}"
        );
        assert!(arguments.contains("it''s a $HOME"), "{arguments}");
        assert_eq!(of("retry_until"), Some("ExitCode =!= 75"));
        assert!(text.ends_with("\nqueue 12\n"));
    }

    #[test]
    fn kubernetes_has_one_index_for_each_job() {
        let text = Lab::new().text(Engine::Kubernetes);
        for line in [
            "completionMode: Indexed",
            "completions: 12",
            "backoffLimitPerIndex: 3",
            "values: [75]",
        ] {
            assert!(text.contains(line), "{line}");
        }
        // Two spaces a level, and no tabs, as YAML wants it.
        assert!(text.lines().all(|line| (line.len() - line.trim_start().len()) % 2 == 0 && !line.contains('\t')));
    }
}
