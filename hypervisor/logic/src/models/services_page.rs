//! The services page, through which programs on several vCPUs of a VM make calls.
// SPDX-License-Identifier: MIT OR Apache-2.0

use crate::power::tests::models::check;
use crate::services_page::{Mailbox, Request};
use cloison_abi::page;
use cloison_abi::reply::Identity;
use loom::sync::{Arc, Mutex};
use loom::thread;

/// How the results of a call are stored.
type Answer = fn(&Mutex<Mailbox>, [u64; 4]);

const READER: Identity = Identity {
    version: 1,
    services: 0,
    vm: 0,
    vcpu: 0,
};

/// Two programs that do not know of each other make a call each, as `exits::hypercall::page_write`
/// does: the page holds the results of one call, and no word of the other's. A guest whose programs
/// share the page has to lock it; that EL2 mixes no results is what it may count on.
fn the_results_are_of_one_call(answer: Answer) {
    let mailbox = Arc::new(Mutex::new(Mailbox::default()));
    let call = move |mailbox: &Mutex<Mailbox>, function: u64| {
        let locked = || mailbox.lock().expect("no thread panics with it");
        assert_eq!(locked().write(page::ARGUMENTS[0], function), None);
        let request = locked().write(page::CALL, function);
        let Some(Request { function, .. }) = request else {
            panic!("no call");
        };
        answer(mailbox, [function.into(); 4]);
    };
    let other = {
        let mailbox = mailbox.clone();
        thread::spawn(move || call(&mailbox, 1))
    };
    call(&mailbox, 2);
    other.join().expect("no assertions");
    let mailbox = mailbox.lock().expect("no thread panics with it");
    let status = mailbox.read(page::CALL, READER);
    let words = page::ARGUMENTS.map(|at| mailbox.read(at, READER));
    assert_eq!(words, [status; 3], "results of two calls");
}

#[test]
fn loom_results_on_the_services_page_are_of_one_call() {
    check("services page", || {
        the_results_are_of_one_call(|mailbox, results| {
            mailbox
                .lock()
                .expect("no thread panics with it")
                .answer(results);
        });
    });
}

#[test]
#[should_panic(expected = "results of two calls")]
fn loom_finds_results_that_are_stored_word_by_word() {
    check("planted: the status, then the words", || {
        the_results_are_of_one_call(|mailbox, [status, words @ ..]| {
            mailbox
                .lock()
                .expect("no thread panics with it")
                .answer([status; 4]);
            for (offset, word) in page::ARGUMENTS.into_iter().zip(words) {
                let mut mailbox = mailbox.lock().expect("no thread panics with it");
                assert_eq!(mailbox.write(offset, word), None);
            }
        });
    });
}
