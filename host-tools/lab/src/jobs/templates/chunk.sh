# The jobs of a task, one after the other, also after one that fails: 75 wins, then the first code that is not 0.
first=$(((task - 1) * {{chunk}} + 1))
code=0
for job in $(seq "$first" $((first + {{chunk}} - 1))); do
    [ "$job" -le {{jobs}} ] || break
    {{program}} job run {{directory}} "$job"
    ended=$?
    if [ "$ended" -eq 75 ] || [ "$code" -eq 0 ]; then
        code=$ended
    fi
done
