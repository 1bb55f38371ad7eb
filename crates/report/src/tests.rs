use super::{Outputs, file, sample, write};

#[test]
fn every_requested_file_is_written_and_no_other() {
    let folder = std::env::temp_dir().join(format!("curtail-outputs-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let at = |name: &str| Some(folder.join(name));
    let mut run = sample::compared(1);
    run.arms[0].name = "../a b".to_owned();
    run.arms[1].name = "../a/b".to_owned();
    let outputs = Outputs {
        json: at("run.json"),
        html: at("run.html"),
        hgrm: at("run.hgrm"),
        hlog: at("run.hlog"),
        prometheus: at("run.prom"),
    };
    write(&run, &[], &Outputs::default()).expect("no output is requested");
    assert_eq!(std::fs::read_dir(&folder).expect("a folder").count(), 0);
    write(&run, &[], &outputs).expect("they can be written");
    let names = std::fs::read_dir(&folder).expect("a folder");
    let mut names: Vec<String> = names
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("a name"))
        .collect();
    names.sort();
    let expected = [
        "run.___a_b-1.response.hgrm",
        "run.___a_b-1.service.hgrm",
        "run.___a_b-2.response.hgrm",
        "run.___a_b-2.service.hgrm",
        "run.hlog",
        "run.html",
        "run.json",
        "run.prom",
    ];
    assert_eq!(names, expected);
    assert_eq!(file::read(&folder.join("run.json")).expect("results"), run);
    std::fs::remove_dir_all(&folder).expect("it can be removed");
    let error = write(&run, &[], &outputs).expect_err("the folder is gone").to_string();
    assert!(error.starts_with(&folder.join("run.json").display().to_string()), "{error}");
}
