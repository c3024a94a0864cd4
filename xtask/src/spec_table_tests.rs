use super::*;

fn only(row: &str) -> Promise {
    parse(row).unwrap().pop().unwrap()
}

fn refused(row: &str) -> String {
    parse(row).unwrap_err().join("; ")
}

#[test]
fn a_row_may_name_tests_and_vectors() {
    let promise = only("| S-012 | no network | `a_test`, `escape:A05` |");
    let expected = [Evidence::Test("a_test".to_owned()), Evidence::Escape("A05".to_owned())];
    assert_eq!(promise.id, "S-012");
    assert_eq!(promise.evidence, expected);
    assert_eq!(promise.pending, None);
}

#[test]
fn a_row_may_be_pending_with_an_issue() {
    let promise = only("| S-013 | soon | pending: issue \"Egress\" |");
    assert_eq!((promise.evidence.len(), promise.pending.as_deref()), (0, Some("Egress")));
}

#[test]
fn a_row_may_be_half_held_and_half_pending() {
    let promise = only("| S-014 | both | `one_half`, pending: issue \"Other half\" |");
    assert_eq!((promise.evidence.len(), promise.pending.as_deref()), (1, Some("Other half")));
}

#[test]
fn text_outside_the_rows_is_passed_over() {
    let text = "# Title\n| number | promise | held by |\n|---|---|---|\n| S-001 | x | `t` |\nS-002 is not a row\n";
    assert_eq!(parse(text).unwrap().len(), 1);
}

#[test]
fn a_row_that_nothing_holds_is_refused() {
    assert!(refused("| S-001 | x |  |").contains("names no test"));
    assert!(refused("| S-001 | x | pending |").contains("neither"));
    assert!(refused("| S-001 | x | pending: later |").contains("without an issue"));
    assert!(refused("| S-001 | x | pending: issue \"\" |").contains("without an issue"));
}

#[test]
fn a_name_without_backticks_is_refused_and_not_passed_over() {
    assert!(refused("| S-001 | x | some_test |").contains("some_test"));
    assert!(refused("| S-001 | x | `one` other |").contains("other"));
}

#[test]
fn malformed_names_numbers_and_cells_are_refused() {
    assert!(refused("| S-1 | x | `t` |").contains("three digits"));
    assert!(refused("| s-001 | x | `t` |").contains("three digits"));
    assert!(refused("| S-0001 | x | `t` |").contains("three digits"));
    assert!(refused("| S-10000 | x | `t` |").contains("three digits"));
    assert!(parse("| S-1000 | x | `t` |").is_ok());
    assert!(refused("| S-001 | x | `t` | more |").contains("4 cells"));
    assert!(refused("| S-001 |  | `t` |").contains("promises nothing"));
    assert!(refused("| S-001 | x | `escape:A1` |").contains("not a vector"));
    assert!(refused("| S-001 | x | `Not::a_name` |").contains("not the name of a function"));
}

#[test]
fn a_number_stands_for_one_promise_only() {
    let error = refused("| S-001 | x | `t` |\n| S-001 | y | `t` |");
    assert!(error.contains("SPECIFICATION.md line 2: S-001 stands there twice"), "{error}");
}

#[test]
fn a_document_without_promises_is_refused() {
    assert!(refused("# nothing here").contains("no promise"));
}

#[test]
fn functions_marked_as_tests_are_found() {
    let source = "
        #[test]
        #[allow(clippy::float_cmp, reason = \"exact\")]
        fn one_thing_holds() {}
        proptest! { #[test] fn inline(x in 0..3) {} }
        #[test] fn on_one_line() {}
        #[test]
        pub fn another_thing_holds() {}";
    let expected = ["another_thing_holds", "on_one_line", "one_thing_holds"];
    assert_eq!(test_functions(source).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn a_test_that_awaits_is_a_test_and_a_task_is_not() {
    let source = "
        #[tokio::test(flavor = \"multi_thread\")]
        async fn it_answers() {}
        async fn a_task() {}
    ";
    assert_eq!(test_functions(source).into_iter().collect::<Vec<_>>(), ["it_answers"]);
}

#[test]
fn helpers_ignored_tests_and_mentions_in_comments_do_not_count() {
    let source = "
        fn helper() {}
        #[test]
        #[ignore = \"slow\"]
        fn never_runs() {}
        // #[test] fn commented_out() {}
        /*
        #[test]
        fn in_a_block_comment() {}
        */
        const SOURCE: &str = r#\"
        #[test]
        fn in_a_string() {}\"#;
        fn after_the_ignored_one() {}";
    assert!(test_functions(source).is_empty());
}

#[test]
fn tests_in_the_table_of_a_program_are_found() {
    let source = r#"
        const TESTS: &[Test] = &[
            ("one_thing_holds", one_thing_holds),
            (
                "another_thing_holds",
                commands::another_thing_holds,
            ),
            ("has_another_name", commands::something_else),
        ];
        const NAMES: [&str; 2] = ["not_a_test", not_a_test];"#;
    let expected = ["another_thing_holds", "one_thing_holds"];
    assert_eq!(listed_tests(source).into_iter().collect::<Vec<_>>(), expected);
}

#[test]
fn each_page_stands_in_the_table_once_with_its_number_of_rows() {
    let document = |name: &str, text: &str| Document { name: name.to_owned(), text: text.to_owned() };
    let page = document("docs/a.md", "| S-001 | x | `t` |\n| S-002 | y | `u` |\n");
    let table = |rows: &str| document("SPECIFICATION.md", rows);
    assert!(misplaced(&[table("| [A](docs/a.md) | 2 |\n"), page]).is_empty());
    for rows in ["", "| [A](docs/a.md) | 1 |\n", "| [A](docs/a.md) | 2 |\n| [A](docs/a.md) | 2 |\n"] {
        let page = document("docs/a.md", "| S-001 | x | `t` |\n| S-002 | y | `u` |\n");
        assert_eq!(misplaced(&[table(rows), page]).len(), 1, "{rows}");
    }
    let page = document("docs/a.md", "| S-002 | x | `t` |\n| S-001 | y | `u` |\n");
    assert_eq!(misplaced(&[table("| [A](docs/a.md) | 2 |\n"), page]), ["docs/a.md: S-002 stands before S-001"]);
}
