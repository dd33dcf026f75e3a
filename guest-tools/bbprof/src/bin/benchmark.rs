//! The vision benchmarks as Linux programs: the same code as in bare-metal guests, with a heap, on
//! scenes, noise or a single color.
// SPDX-License-Identifier: MIT OR Apache-2.0
#![forbid(unsafe_code)]

use cloison_benchmarks::random::Random;
use cloison_benchmarks::{Disparity, Kernel, Matmul, Segmentation, Size};
use std::hint::black_box;
use std::process::ExitCode;

/// The input of the program.
enum Input {
    /// The scene of a seed.
    Scene(u64),
    /// Pixels at random: the first degenerate input of BBProf, section 7.2.
    Noise,
    /// Pixels of one brightness: the second.
    Solid,
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, size, input] = arguments.as_slice() else {
        return usage();
    };
    let Some(size) = size.parse().ok().and_then(Size::from_number) else {
        return usage();
    };
    let input = match (input.as_str(), input.parse()) {
        ("noise", _) => Input::Noise,
        ("solid", _) => Input::Solid,
        (_, Ok(seed)) => Input::Scene(seed),
        _ => return usage(),
    };
    match name.as_str() {
        "disparity" => work(&Disparity::new(size), &input),
        "segmentation" => work(&Segmentation::new(size), &input),
        "matmul" => work(&Matmul::new(size), &input),
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

fn usage() -> ExitCode {
    eprintln!("usage: bbprof-benchmark disparity|segmentation|matmul 1|2|3 SEED|noise|solid");
    ExitCode::FAILURE
}

/// Prepares the input and runs the benchmark once.
fn work<K: Kernel>(kernel: &K, input: &Input) {
    let mut memory = vec![0; kernel.words()];
    match input {
        Input::Scene(seed) => kernel.prepare(&mut memory, *seed),
        Input::Noise => {
            let mut random = Random::new(1);
            memory[..kernel.input()].fill_with(|| random.below(256) as u32);
        }
        Input::Solid => memory[..kernel.input()].fill(128),
    }
    black_box(segment)(&mut || kernel.run(&mut memory));
    println!(
        "{}: {kernel} checksum={:#018x}",
        K::NAME,
        kernel.checksum(&memory)
    );
}

/// The observation segment.
#[inline(never)]
fn segment(run: &mut dyn FnMut()) {
    run();
}
