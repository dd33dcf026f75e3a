//! C as configurations use it: the preprocessor, initializers and constant expressions.
//!
//! A compiler is not needed, nor are the headers of the other hypervisor: names that nothing
//! defines are errors only where their value is asked for.
// SPDX-License-Identifier: MIT OR Apache-2.0

mod expression;
mod initializer;
mod lexer;
mod preprocessor;

pub use expression::{evaluate, number};
pub use initializer::{Call, Field, List, Node, Objects};
pub use lexer::{Kind, Token, place_at, sign_at, unquote};
pub use preprocessor::{Preprocessed, Settings, run};
